"""The exceptions frostline raises on purpose, sorted by who can fix them, and the exit codes they end in.

Knows nothing of what went wrong; the raising module writes the message.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

EXIT_BUG = 1
EXIT_USAGE = 2
EXIT_DATA = 3
EXIT_MISSING_EXTRA = 4
EXIT_CRASHED_RUNS = 5
EXIT_SIGNAL = 128
"""plus the number of the signal that ended a command, as shells show it"""
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141
"""what a shell shows when the reader of a pipe ended first, as in `| head`"""

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that steer a terminal, turn the direction of text, end a line, or cannot be written at all."""
_NAMED = 3
_LISTED = 10
_LONGEST_NAME = 80


class FrostlineError(Exception):
    """Anything frostline can explain in one line."""

    exit_code = EXIT_BUG


class UsageError(FrostlineError, ValueError):
    """A request that cannot be done; the caller can fix it now."""

    exit_code = EXIT_USAGE

    @classmethod
    def together(cls, faults: Sequence[str]) -> UsageError:
        """One error that shows all faults of one request."""
        return cls("; ".join(faults))


class DataError(FrostlineError):
    """A file does not hold what it should; the person who made it can fix it."""

    exit_code = EXIT_DATA

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(place + message)
        self.path = None if path is None else Path(path)
        self.line = line


class MissingExtraError(FrostlineError, ImportError):
    """An optional package is not installed."""

    exit_code = EXIT_MISSING_EXTRA

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed; run: pip install 'frostline[{extra}]'")
        self.extra = extra


def suggestion(given: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for the nearest known name, or nothing."""
    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def one_line(error: BaseException, at_most: int = 300) -> str:
    """What a library's error says, in one line that can be printed."""
    said = "".join(character if character.isprintable() else " " for character in str(error))
    return " ".join(said.split())[:at_most]


def printable(text: str) -> str:
    r"""The text with escapes (`\x1b`, `\u202e`) for characters that must not reach a terminal; lines and tabs stay.

    Text from outside may be in anything that is printed: labels, names of files, messages of libraries.
    """
    return UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\t":
        return character
    # JSON has the second form too, so a row of JSON stays one.
    return f"\\x{ord(character):02x}" if character < " " else f"\\u{ord(character):04x}"


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def listed(names: Sequence[str]) -> str:
    """The names in one line: the first few of many with their number, and only the beginning of a long name."""
    short = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names[:_LISTED]]
    shown = ", ".join(name if name.isprintable() else repr(name) for name in short)
    return shown if len(names) <= _LISTED else f"{shown}, … ({len(names)} in all)"


def check_choice(name: str, given: str, known: Iterable[str]) -> str:
    """`given`, if it is one of `known`; otherwise a UsageError that lists them and suggests the nearest."""
    allowed = list(known)
    if given not in allowed:
        raise UsageError(f"unknown {name} {given!r}; known: {', '.join(allowed)}.{suggestion(given, allowed)}")
    return given


def check_between(name: str, given: int, lowest: int, highest: int) -> int:
    """`given`, if it lies in the closed range; otherwise a UsageError that names the range."""
    if not lowest <= given <= highest:
        raise UsageError(f"{name} is {given}; it must lie between {lowest} and {highest}")
    return given
