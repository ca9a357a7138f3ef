"""The studies of this package as Python users call them; `frostline.api` passes them on."""

from __future__ import annotations

from typing import Any, Unpack

from frostline.errors import UsageError
from frostline.report.progress.display import Progress
from frostline.studies.driver import open_session
from frostline.studies.inside.few import FewRequest, FewStudy
from frostline.studies.inside.heads import ROWS, HeadsRequest, HeadsStudy
from frostline.studies.requests.parse import Parsed, parse
from frostline.studies.requests.settings import FewSettings, HeadsSettings
from frostline.studies.requests.values import read_number, read_sizes, read_strategies
from frostline.studies.results import FewResult, HeadsResult, result_of


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


def heads(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[HeadsSettings]) -> HeadsResult:
    """The importance of every attention head, and the score when they are pruned. Nothing trains but a linear head.

    Writes `report.html`, `heads.json`, `heads.md` and `heads.svg` into the output folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: `rows=1000`, most training rows that importance is computed on; `keep=0.9`; `prune=False` for
            importance alone; `tuned`, the folder of a fine-tuned model that is measured with its own head; data,
            machine and output as for `curve`.
    """
    given = {name: value for name, value in settings.items() if name != "tuned"}
    tuned = settings.get("tuned")
    parsed = parse(model if tuned is None else str(tuned), task, given, HeadsSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(HeadsStudy(), heads_request(parsed, is_tuned=tuned is not None))
    return result_of(HeadsResult, finished.record, [finished.chapter])


def heads_request(parsed: Parsed, *, is_tuned: bool = False) -> HeadsRequest:
    """The request of a study of attention heads, from its settings."""
    return HeadsRequest(
        request=parsed.request,
        rows=int(read_number("rows", parsed.own.get("rows", ROWS))),
        prune=bool(parsed.own.get("prune", True)),
        is_tuned=is_tuned,
    )


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
