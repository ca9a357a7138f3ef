"""What is known of a setting of a command: its flag, its help, its default and its panel, read from its declaration."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final

from frostline.records.requests import RunOptions, StudyRequest
from frostline.records.serial import field_docs
from frostline.records.specs import TaskSpec
from frostline.studies.requests.settings import ELSEWHERE, PANELS, Flag

_RECORDS = (StudyRequest, TaskSpec, RunOptions)


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a command, with everything about it filled in."""

    name: str
    type: Any
    """on the command line and, for a single value, in a config file; without `| None`"""
    items: Any
    """the type of each item, where it takes one value or a list; None: it takes one value"""
    help: str
    default: str
    """for people; empty where there is none"""
    panel: str
    is_negated: bool
    is_python_only: bool

    @property
    def flag(self) -> str:
        """`--batch-size`, `--no-cache`."""
        return f"--{'no-' if self.is_negated else ''}{self.name.replace('_', '-')}"

    @classmethod
    def plain(cls, name: str, kind: Any) -> Setting:
        """One that only a config file has: model, task and switches of the command itself."""
        return cls(
            name=name, type=kind, items=None, help="", default="", panel="", is_negated=False, is_python_only=False
        )


def settings_of(declared: Any) -> dict[str, Setting]:
    """The settings of a class by name, panel by panel."""
    hints = typing.get_type_hints(declared, include_extras=True)
    found = {name: _setting(name, hint) for name, hint in hints.items()}
    panels = list(PANELS)
    return dict(sorted(found.items(), key=lambda one: panels.index(one[1].panel)))


def _setting(name: str, hint: Any) -> Setting:
    python_type, flag = _parts(hint)
    field = flag.field or name
    return Setting(
        name=name,
        type=flag.type or _without_none(python_type),
        items=flag.items,
        help=flag.help or _DOCS[field],
        default=_shown(_DEFAULTS.get(field)) if flag.default is None else flag.default,
        panel=ELSEWHERE.get(name) or next(title for title, owners in PANELS.items() if _declares(owners, name)),
        is_negated=flag.is_negated,
        is_python_only=flag.is_python_only,
    )


def _parts(hint: Any) -> tuple[Any, Flag]:
    if typing.get_origin(hint) is Annotated:
        python_type, flag = typing.get_args(hint)
        return python_type, flag
    return hint, Flag()


def _without_none(hint: Any) -> Any:
    """The type without `| None`: a setting that is None was not given."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    is_optional = type(None) in typing.get_args(hint)
    return members[0] if is_optional and len(members) == 1 else hint


def _declares(owners: Sequence[Any], name: str) -> bool:
    return any(name in owner.__annotations__ for owner in owners)


def _shown(default: object) -> str:
    """A record's default, for people."""
    if default is None or default is dataclasses.MISSING:
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ",".join(f"{item:g}" if isinstance(item, float) else str(item) for item in default)
    return f"{default:g}" if isinstance(default, float) else str(default)


_DOCS = {name: text for record in _RECORDS for name, text in field_docs(record).items()}
_DEFAULTS = {field.name: field.default for record in _RECORDS for field in dataclasses.fields(record)}
