"""A record may be renamed, grow and shrink without orphaning what is stored."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from frostline.errors import DataError
from frostline.records.depth import FULL, Depth
from frostline.records.keys import key_of
from frostline.records.serial import Record, added_later, json_name, key_fields, not_in_key, request_fields


@dataclass(frozen=True, kw_only=True)
class Old(Record):
    """As it was."""

    rate: float
    place: str = not_in_key()
    asked: str
    junk: int = 0


@dataclass(frozen=True, kw_only=True)
class New(Record):
    """One field renamed, one added, one removed."""

    _removed = frozenset({"junk"})

    rate: float
    place: str = not_in_key()
    request: str = json_name("asked")
    decay: float = added_later(0.0)


@dataclass(frozen=True, kw_only=True)
class Outer(Record):
    """Holds one."""

    inner: New


OLD = Old(rate=1e-3, place="/a", asked="this", junk=3)
NEW = New(rate=1e-3, place="/a", request="this")


def test_what_an_older_version_wrote_is_read() -> None:
    assert New.from_json(OLD.to_json()) == NEW


def test_a_field_has_its_first_name_in_json() -> None:
    assert NEW.to_json() == {"rate": 1e-3, "place": "/a", "asked": "this", "decay": 0.0}
    assert New.from_json(NEW.to_json()) == NEW


def test_a_later_field_is_in_a_key_only_when_it_is_not_the_default() -> None:
    without = {"rate": 1e-3, "asked": "this"}
    assert key_fields(NEW) == without
    assert key_fields(Outer(inner=NEW)) == {"inner": without}
    assert key_fields(NEW.replace(decay=0.1)) == without | {"decay": 0.1}
    assert key_of(key_fields(NEW)) != key_of(key_fields(NEW.replace(decay=0.1)))


def test_a_request_counts_places_too() -> None:
    assert request_fields(NEW) == {"rate": 1e-3, "place": "/a", "asked": "this"}


def test_twin_what_was_never_a_field_is_refused() -> None:
    with pytest.raises(DataError, match="unknown \\['typo'\\]"):
        New.from_json(OLD.to_json() | {"typo": 1})
    with pytest.raises(DataError, match="missing fields \\['rate'\\]"):
        New.from_json({"place": "/a", "asked": "this"})


@dataclass(frozen=True, kw_only=True)
class AtDepth(Record):
    """Holds a depth."""

    n_frozen: Depth


def test_the_full_model_is_null_in_json_and_one_value_in_python() -> None:
    assert AtDepth(n_frozen=FULL).to_json() == {"n_frozen": None}
    assert AtDepth.from_json({"n_frozen": None}).n_frozen is FULL
    assert AtDepth.from_json({"n_frozen": 3}).n_frozen == 3
    assert str(FULL) == "full"
