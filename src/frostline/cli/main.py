"""The outer frame of the command line: every error that frostline can explain is one line and an exit code."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

import typer

from frostline.cli import bundles, commands, serving, studies, weights  # noqa: F401 - they register commands
from frostline.cli.app import app
from frostline.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    EXIT_SIGNAL,
    EXIT_USAGE,
    FrostlineError,
    printable,
    suggestion,
)
from frostline.records.environment import as_command
from frostline.storage import atomic

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []
"""the signal that asked this process to end"""


def _dashed(arguments: Iterable[str]) -> list[str]:
    """Flags with `-` for `_`: both are the same to us."""
    fixed = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        fixed.append(name.replace("_", "-") + equals + value if name.startswith("--") else argument)
    return fixed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code."""
    given = _dashed(sys.argv[1:] if arguments is None else arguments)
    try:
        with as_command(given):
            return _run(given)
    except FrostlineError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(_library_line(error, given), EXIT_USAGE)
    except SystemExit as error:
        if error.code != 1:  # what typer and rich make of a reader that went away, as in `| head`
            raise
        return EXIT_READER_GONE
    except Exception as error:  # noqa: BLE001 - the outer frame
        if _received:  # for example, the terminal is gone and nothing can be printed on it
            return _interrupted()
        if isinstance(error, OSError) and (error.filename or atomic.is_full(error)):
            return _fail(_system_line(error), EXIT_USAGE)
        sys.stderr.write(printable(traceback.format_exc()))
        return _fail("this is a fault of frostline; please report it with the lines above", EXIT_BUG)


def _run(given: list[str]) -> int:
    code = app(args=given or ["--help"], prog_name="frostline", standalone_mode=False)
    if code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C
        return _interrupted()
    return code if isinstance(code, int) else 0


def _interrupted() -> int:
    number = signal.Signals(_received[0]) if _received else signal.SIGINT
    how = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    return _fail(f"{how}; finished runs are kept, the same command goes on from there", EXIT_SIGNAL + number)


def _system_line(error: OSError) -> str:
    """What the system says of a file or folder: no space, no right, a name too long."""
    remedy = "make space" if atomic.is_full(error) else "give another"
    return f"{str(error.filename or 'the output')[:200]}: {error.strerror}; {remedy}"


def _library_line(error: typer.TyperException, given: list[str]) -> str:
    """The library's line, with the nearest flag to an unknown one, or the value that was refused."""
    if near := getattr(error, "possibilities", None):
        return f"{error.message}.{suggestion(getattr(error, 'option_name', ''), near)}"
    flag_names = getattr(getattr(error, "param", None), "opts", ())
    words = [word for argument in given for word in argument.split("=", 1)]
    refused = [value for name, value in itertools.pairwise(words) if name in flag_names]
    line = error.format_message()
    return f"{line} (given: {refused[-1]!r})" if refused and repr(refused[-1]) not in line else line


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # a terminal that is gone: the exit code still says it
        sys.stderr.write(f"frostline: {printable(' '.join(message.split()))}\n")
    return code


def entry() -> None:
    """What the `frostline` script calls."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who called us
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    _make_safe()
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    sys.exit(_flushed(main()))


class _SafeRecord(logging.LogRecord):
    """A log message without characters that steer the terminal."""

    def getMessage(self) -> str:  # noqa: N802
        """The message, with its arguments."""
        return printable(super().getMessage())


def _make_safe() -> None:
    """Has warnings and log messages of libraries printed without characters that steer the terminal."""
    as_text = warnings.formatwarning
    vars(warnings)["formatwarning"] = lambda *given, **named: printable(as_text(*given, **named))
    logging.setLogRecordFactory(_SafeRecord)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Ends the command as Ctrl-C does: everything that is open is closed. The next signal ends the process at once."""
    _received.append(number)
    for each in _ENDING:
        signal.signal(each, signal.SIG_DFL)
    raise KeyboardInterrupt


def _flushed(code: int) -> int:
    """The exit code, once all that was said has gone out."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would try, and complain, again
        if isinstance(error, BrokenPipeError):
            return EXIT_READER_GONE
        if code:
            return code
        return _fail(f"the output cannot be written: {error.strerror}; send it elsewhere", EXIT_USAGE)
    return code
