"""Messages between the driver and a worker process: one line of JSON, then raw bytes if there are any.

The line says how many bytes follow, in how many pieces: a checkpoint of a small real model has 270 MB, the predictions
of 20,000 rows and 10,000 classes 800 MB. A large piece is received into an unnamed file and mapped, so that it does not
fill the driver's memory.
"""

from __future__ import annotations

import json
import mmap
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from frostline.errors import DataError
from frostline.execution.executor import Job, Outcome
from frostline.records.results import Crash, EpochRecord, PausedRun, RunResult
from frostline.records.serial import parse_json
from frostline.records.specs import RunSpec
from frostline.storage import atomic

Content = bytes | memoryview
Message = tuple[dict[str, Any], Sequence[Content]]
Answer = Outcome | EpochRecord | str
"""The outcome of a job, an epoch of it, or a line for the user."""

MOST_IN_MEMORY = 2**24
"""bytes of the largest piece that is received into memory"""
_CHUNK = 2**20
_MAX_ATTACHED = 2**40


class Sink(Protocol):
    """A file to write to, as far as messages need it."""

    def write(self, content: Any, /) -> object:
        """Adds content."""

    def flush(self) -> object:
        """Lets the other side have it."""


def send(stream: Sink, content: Mapping[str, object], attached: Sequence[Content] = ()) -> None:
    """Writes a message and flushes it."""
    line = json.dumps({**content, "n_bytes": [len(piece) for piece in attached]}, allow_nan=False)
    stream.write(line.encode("utf-8") + b"\n")
    for piece in attached:
        stream.write(piece)
    stream.flush()


def receive(stream: IO[bytes]) -> Message | None:
    """The next message; None if the stream has ended, or goes on with something that is not a message.

    A sender that is killed may leave half a line or half of the bytes. That is the end of the stream too: the message
    is dropped.
    """
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        content = parse_json(line)
    except DataError:
        return None
    attached: list[Content] = []
    for n_bytes in _lengths(content):
        piece = stream.read(n_bytes) if n_bytes <= MOST_IN_MEMORY else _spooled(stream, n_bytes)
        if len(piece) != n_bytes:
            return None
        attached.append(piece)
    return content, attached


def _lengths(content: Any) -> list[int]:
    """The lengths of the pieces that follow a message."""
    found = content.pop("n_bytes", None) if isinstance(content, dict) else None
    is_known = isinstance(found, list) and all(isinstance(one, int) and 0 <= one <= _MAX_ATTACHED for one in found)
    return list(found) if found and is_known else []


def _spooled(stream: IO[bytes], n_bytes: int) -> memoryview:
    """The next bytes of a stream, mapped from an unnamed file; none if the stream ends before."""
    with atomic.explained(f"the temporary folder {tempfile.gettempdir()}"), tempfile.TemporaryFile() as file:
        n_left = n_bytes
        while n_left and (chunk := stream.read(min(n_left, _CHUNK))):
            file.write(chunk)
            n_left -= len(chunk)
        file.flush()
        return memoryview(
            mmap.mmap(file.fileno(), n_bytes - n_left, access=mmap.ACCESS_READ) if n_left < n_bytes else b""
        )


def job_message(job: Job) -> Message:
    """A job as a message."""
    content = {"spec": job.spec.to_json(), "until": job.until, "nearby": list(job.nearby)}
    return content, [] if job.checkpoint is None else [job.checkpoint]


def job_from_message(content: dict[str, Any], attached: Sequence[Content]) -> Job:
    """The job of a message."""
    checkpoint = attached[0] if attached else None
    return Job(RunSpec.from_json(content["spec"]), content["until"], checkpoint, tuple(content["nearby"]))


def outcome_message(outcome: Outcome) -> Message:
    """The outcome of a run as a message."""
    if isinstance(outcome, RunResult):
        return {"result": outcome.without_arrays().to_json()}, [array.raw() for array in outcome.arrays]
    if isinstance(outcome, PausedRun):
        return {"paused": outcome.to_json()}, [outcome.checkpoint or b""]
    return {"crash": outcome.to_json()}, []


def answer_from_message(content: Any, attached: Sequence[Content]) -> Answer | None:
    """What a worker says in a message; None if it says nothing that can be read."""
    try:
        match content:
            case {"result": result}:
                return _result(RunResult.from_json(result), attached)
            case {"paused": paused} if len(attached) == 1:
                return PausedRun.from_json(paused).replace(checkpoint=attached[0])
            case {"crash": crash}:
                return Crash.from_json(crash)
            case {"epoch": epoch}:
                return EpochRecord.from_json(epoch)
            case {"message": str(text)}:
                return text
    except DataError:
        return None
    return None


def _result(result: RunResult, attached: Sequence[Content]) -> RunResult:
    if len(attached) != len(result.arrays):
        raise DataError(f"a result with {len(attached)} arrays")
    pieces = iter(attached)
    return result.with_arrays(lambda array: array.from_bytes(next(pieces)))
