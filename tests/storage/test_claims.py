"""Claims: one living process at a time, and a dead process holds nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from frostline.errors import UsageError
from frostline.storage.claims import Claims

if TYPE_CHECKING:
    from _typeshed import TraceFunction

STORAGE = str(Path("frostline", "storage"))
HOLDER = """
import sys
from pathlib import Path
from frostline.storage.claims import Claims

claims = Claims(Path(sys.argv[1]))
print(claims.take("key"), flush=True)
sys.stdin.readline()
claims.release("key")
print("released", flush=True)
sys.stdin.readline()
"""


def start_holder(out: Path) -> subprocess.Popen[str]:
    """A process that has claimed `key`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_a_claim_is_held_by_one_and_its_file_goes_with_it(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    assert one.take("key")
    assert one.take("key"), "it is ours"
    assert not other.take("key")
    assert other.take("another")
    assert other.holders(["key", "unclaimed"]) == [os.getpid()]
    one.release("key")
    assert other.take("key")
    other.release_all()
    assert not (tmp_path / "claims").exists()


def test_a_forgotten_claim_goes_with_its_owner(tmp_path: Path) -> None:
    forgotten = Claims(tmp_path)
    assert forgotten.take("key")
    del forgotten
    assert not (tmp_path / "claims").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_claim_of_another_process_ends_with_its_release_or_its_death(tmp_path: Path, is_killed: bool) -> None:
    claims, holder = Claims(tmp_path), start_holder(tmp_path)
    assert not claims.take("key")
    assert claims.holders(["key"]) == [holder.pid]
    if is_killed:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        assert (tmp_path / "claims" / "key").exists(), "the file is left, but it means nothing"
    else:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "released\n"
    assert claims.take("key")
    holder.communicate()
    claims.release_all()
    assert not (tmp_path / "claims").exists()


def test_what_a_killed_process_left_goes_with_the_next_command(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    Claims(tmp_path)
    assert (tmp_path / "claims" / "key").exists(), "its owner lives"
    holder.kill()
    holder.communicate()
    Claims(tmp_path)
    assert not (tmp_path / "claims").exists()


def test_a_command_may_begin_while_another_one_ends(tmp_path: Path) -> None:
    """The last claim that is released takes the folder with it, at any moment of the one that looks for leftovers."""
    is_over = threading.Event()

    def come_and_go() -> int:
        claims, n_taken = Claims(tmp_path), 0
        while not is_over.is_set():
            n_taken += claims.take("key")  # in vain, while the other one looks at the file
            claims.release("key")
        return n_taken

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(come_and_go)
        try:
            for _ in range(2000):
                Claims(tmp_path)
        finally:
            is_over.set()
        assert other.result() > 0, "neither of the two raised, and the claim could be taken"


class _Interrupted(BaseException):
    """As a signal raises it: between any two lines."""


@contextlib.contextmanager
def _interrupted_at(n_lines: int) -> Iterator[None]:
    """Raises before the line of that number that code of `storage` runs in the block."""
    left = n_lines

    def tracer(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if STORAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise _Interrupted
        return tracer

    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(None)


def _interrupted(claims: Claims, n_lines: int, *, is_held_elsewhere: bool) -> bool:
    """Whether taking and releasing a claim is interrupted before it is over."""
    try:
        with _interrupted_at(n_lines):
            assert claims.take("key") is not is_held_elsewhere
            claims.release("key")
    except _Interrupted:
        return True
    return False


@pytest.mark.parametrize("is_held_elsewhere", [False, True])
def test_a_signal_at_any_moment_leaves_no_claim_behind(tmp_path: Path, is_held_elsewhere: bool) -> None:
    other, n_lines = Claims(tmp_path), 1
    ended = list[Claims]()  # so that none is collected, and released, inside another one's block
    if is_held_elsewhere:
        assert other.take("key")
    while _interrupted(claims := Claims(tmp_path), n_lines, is_held_elsewhere=is_held_elsewhere):
        ended.append(claims)
        claims.release_all()
        assert (tmp_path / "claims" / "key").exists() is is_held_elsewhere, f"line {n_lines}"
        assert (tmp_path / "claims").exists() is is_held_elsewhere, f"line {n_lines}"
        n_lines += 1
    assert n_lines > 20


def test_the_folder_may_go_while_it_is_being_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mkdir` finds the folder, and by the time it asks whether it is a folder, it has gone."""
    real_mkdir, surprises = os.mkdir, 3

    def mkdir(path: str | Path, mode: int = 0o777) -> None:
        nonlocal surprises
        if surprises and Path(path).name == "claims":
            surprises -= 1
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        real_mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    claims = Claims(tmp_path)
    assert claims.take("key")
    assert not surprises
    claims.release_all()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("not a folder")
    with pytest.raises(UsageError, match=r"claims.*cannot be written"):
        Claims(tmp_path).take("key")
