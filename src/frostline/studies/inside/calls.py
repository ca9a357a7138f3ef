"""The studies of this package as Python users call them; `frostline.api` passes them on."""

from __future__ import annotations

from typing import Any, Unpack

from frostline.errors import UsageError
from frostline.report.progress.display import Progress
from frostline.studies.driver import open_session
from frostline.studies.inside.few import FewRequest, FewStudy
from frostline.studies.requests.parse import Parsed, parse
from frostline.studies.requests.settings import FewSettings
from frostline.studies.requests.values import read_number, read_sizes, read_strategies
from frostline.studies.results import FewResult, result_of


def few(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[FewSettings]) -> FewResult:
    """Quality of several strategies with few training rows per class; each seed draws its own rows.

    Writes `report.html`, `few.json`, `few.md` and `few.svg` into the output folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: those of `compare`; `per_class=[8, 16, 64]`; `steps`, the training steps at every size; the protocol
            is `paper` unless given, because few rows leave none to hold out.
    """
    parsed = parse(model, task, settings, FewSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(FewStudy(), few_request(parsed))
    return result_of(FewResult, finished.record, [finished.chapter])


def few_request(parsed: Parsed) -> FewRequest:
    """The request of a few-example comparison, from its settings."""
    if "per_class" not in parsed.own:
        raise UsageError("per_class is missing; give numbers of training rows of each class, for example 8,16,64")
    steps = parsed.own.get("steps")
    return FewRequest(
        request=parsed.request,
        strategies=read_strategies(parsed.own.get("strategies", ())),
        per_class=read_sizes(parsed.own["per_class"], "per_class"),
        n_steps=None if steps is None else int(read_number("steps", steps)),
    )
