"""The studies of this package as Python users call them; `frostline.api` passes them on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from frostline.errors import UsageError, check_choice
from frostline.report.formats.registry import write_report, write_result
from frostline.report.inside.change_chapter import ChangeChapter
from frostline.report.progress.display import Progress
from frostline.studies.driver import Session, open_session
from frostline.studies.inside.change import ROWS as DEV_ROWS
from frostline.studies.inside.change import ChangeRequest, ChangeStudy
from frostline.studies.inside.few import FewRequest, FewStudy
from frostline.studies.inside.heads import ROWS, HeadsRequest, HeadsStudy
from frostline.studies.inside.scout import ROWS as SCORED_ROWS
from frostline.studies.inside.scout import ScoutRequest, ScoutStudy
from frostline.studies.requests.inside_settings import ChangeSettings, HeadsSettings, ScoutSettings
from frostline.studies.requests.parse import Parsed, parse
from frostline.studies.requests.settings import FewSettings
from frostline.studies.requests.values import read_number, read_sizes, read_strategies
from frostline.studies.results import ChangeResult, FewResult, HeadsResult, ScoutResult, result_of


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


def change(
    model: Any, task: Any = None, *, progress: Progress | None = None, **settings: Unpack[ChangeSettings]
) -> ChangeResult:
    """What fine-tuning changes inside the layers: attention maps, states and weights.

    Trains the full model and half-frozen ones, and compares each with the pretrained model on dev rows. Writes
    `report.html`, `change.json`, `change.md` and `change.svg` into the output folder. With `tuned` nothing trains:
    the given model is compared, and files are written only into a given `out`.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`; with `tuned` it may be left out,
            and only weights are compared.
        progress: shows how it goes; on standard error by default.
        settings: `frozen`, the depths to train beside the full model; `rows=1000`, most dev rows; `seeds=3`; `tuned`, a
            model that was fine-tuned from `model`; others as for `curve`.
    """
    tuned = settings.get("tuned")
    if tuned is not None:
        return _change_between(str(model), str(tuned), task, dict(settings))
    if task is None:
        raise UsageError("the task is missing; without one only two models can be compared: give tuned")
    parsed = change_parsed(model, task, settings)
    with open_session(parsed, progress) as session:
        finished = session.run(ChangeStudy(), change_request(parsed))
    return result_of(ChangeResult, finished.record, [finished.chapter])


def change_parsed(model: Any, task: Any, settings: Mapping[str, Any]) -> Parsed:
    """What the settings of `change` say; three seeds unless given."""
    return parse(model, task, {"seeds": 3, **settings}, ChangeSettings)


def change_request(parsed: Parsed) -> ChangeRequest:
    """The request of a study of change, from its settings."""
    return ChangeRequest(request=parsed.request, rows=int(read_number("rows", parsed.own.get("rows", DEV_ROWS))))


def _change_between(model: str, tuned: str, task: Any, settings: dict[str, Any]) -> ChangeResult:
    """What changed between two given models."""
    from frostline.studies.inside.two_models import change_between

    rows, out = int(read_number("rows", settings.get("rows", DEV_ROWS))), settings.get("out")
    given = {name: value for name, value in settings.items() if name != "tuned"}
    request = None if task is None else parse(model, task, given, ChangeSettings).request
    record = change_between(model, tuned, request, rows)
    chapter = ChangeChapter(change=record)
    if out is not None:
        write_result(chapter, Path(out), ChangeStudy.name)
        write_report([chapter], Path(out) / "report.html")
    return result_of(ChangeResult, record, [chapter])


def scout(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[ScoutSettings]) -> ScoutResult:
    """The depth that scores of the layers predict before any training, and how right each has been.

    Writes `report.html`, `scout.json`, `scout.md` and `scout.svg` into the output folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: `rows=1000`, most training rows whose states are scored; others as for `curve`.
    """
    parsed = parse(model, task, settings, ScoutSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(ScoutStudy(), scout_request(parsed))
    return result_of(ScoutResult, finished.record, [finished.chapter])


def scouted_start(session: Session, parsed: Parsed) -> int | None:
    """The depth that a search tries first, if it was asked to start where `scout` says; the scores are kept too."""
    start = check_choice("start", parsed.own.get("start", "deepest"), ("deepest", "scout"))
    if start == "deepest":
        return None
    if parsed.request.axis != "depth":
        raise UsageError(f"scout predicts a depth; --start scout is not for --axis {parsed.request.axis}")
    return session.run(ScoutStudy(), ScoutRequest(request=parsed.request)).record.start


def scout_request(parsed: Parsed) -> ScoutRequest:
    """What is asked before training, from the settings of a command."""
    return ScoutRequest(request=parsed.request, rows=int(read_number("rows", parsed.own.get("rows", SCORED_ROWS))))
