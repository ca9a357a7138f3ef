"""Messages between processes: arrays travel as raw bytes, and large ones never fill the driver's memory."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest

from frostline.execution import transport
from frostline.execution.transport import answer_from_message, outcome_message, receive, send
from frostline.records.results import RunResult
from synthetic import make_result


def test_a_large_piece_is_mapped_from_a_file_that_nobody_else_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    whole, pieces = io.BytesIO(), [bytes(range(256)) * 5, b"small", bytes(3_000_000)]
    send(whole, {"result": 1}, pieces)
    message = receive(io.BytesIO(whole.getvalue()))
    assert message == ({"result": 1}, pieces)
    assert [isinstance(piece, memoryview) for piece in message[1]] == [True, False, True]
    assert list(tmp_path.iterdir()) == []
    for length in (whole.tell() - 1, whole.tell() - 2_999_999, 100):
        assert receive(io.BytesIO(whole.getvalue()[:length])) is None


def test_an_outcome_travels_as_json_and_raw_bytes() -> None:
    whole, result = io.BytesIO(), make_result(2, 0, 0.75, n_dev=1000)
    send(whole, *outcome_message(result))
    assert b"base64" not in whole.getvalue()
    assert whole.tell() < 5_000 + sum(array.n_bytes for array in result.predictions.arrays)
    message = receive(io.BytesIO(whole.getvalue()))
    assert message is not None
    again = answer_from_message(*message)
    assert isinstance(again, RunResult)
    assert again == result
    assert np.array_equal(again.predictions.outputs.array(), result.predictions.outputs.array())
