"""What Python users call: one function per command, with the command's flags as typed keyword arguments.

Importing this module does not import torch: a session does so once settings and data are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from frostline.analysis import Equal, Finding, value_of
from frostline.errors import UsageError, check_choice
from frostline.model.weight_files import open_weights
from frostline.records.requests import ResolvedRequest
from frostline.records.results import RunResult
from frostline.records.specs import BundleDtype, Protocol, RunSpec
from frostline.report.progress.display import Progress
from frostline.report.wording import curve_words
from frostline.saving.folder import check_new_folder
from frostline.serving.bundles.calls import bundle as bundle
from frostline.serving.bundles.calls import merge_bundle as merge_bundle
from frostline.studies.compare import CompareRequest, CompareStudy
from frostline.studies.curve import CurveStudy
from frostline.studies.driver import open_session
from frostline.studies.find import FindRequest, FindStudy
from frostline.studies.grids import RatesStudy, SizesRequest, SizesStudy
from frostline.studies.inside.calls import change as change
from frostline.studies.inside.calls import change_parsed, change_request, few_request, scouted_start
from frostline.studies.inside.calls import few as few
from frostline.studies.inside.calls import heads as heads
from frostline.studies.inside.calls import scout as scout
from frostline.studies.inside.change import ChangeStudy
from frostline.studies.inside.few import FewStudy
from frostline.studies.planning.axis import axis_of, spec_at
from frostline.studies.probes import ProbesStudy
from frostline.studies.requests.parse import Parsed, parse
from frostline.studies.requests.settings import (
    CompareSettings,
    CurveSettings,
    FewSettings,
    FindSettings,
    SizesSettings,
    TrainSettings,
)
from frostline.studies.requests.values import (
    read_budget,
    read_folder,
    read_one_seed,
    read_sizes,
    read_strategies,
    without_numpy,
)
from frostline.studies.results import ComparisonResult, CurveResult, FindResult, RatesResult, SizesResult, result_of
from frostline.studies.train import Destination, strategy_of, to_folder, train_and_save
from frostline.studies.train import train as train_strategy

if TYPE_CHECKING:
    from frostline.model.stack import Stack
    from frostline.studies.planning.estimate import Estimate
    from frostline.studies.requests.resolve import Inputs


def curve(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[CurveSettings]) -> CurveResult:
    """Scores at every depth with several seeds, and the operating points.

    Writes `report.html`, `curve.json`, `curve.md` and `curve.svg` into the output folder. Runs that are already there
    are not done again.

    Args:
        model: a Hub name, a folder, or a transformers model (with `tokenizer=` where its name does not lead to one).
        task: a known task, a file, a folder, a Hub data set, or rows: a pandas DataFrame, a `datasets.Dataset`, a
            `DatasetDict`, or a dict of train and dev. Rows are written to the output folder; the task is called `name`.
        progress: shows how it goes; on standard error by default.
        settings: the command's flags by their names: `out`, `data`, `seeds=5`, `lr`, `frozen="0,6-12"`, ….
    """
    parsed = parse(model, task, settings, CurveSettings)
    with open_session(parsed, progress) as session:
        if parsed.options.probe:
            session.run_beside(ProbesStudy(), parsed.request)
        finished = session.run(CurveStudy(), parsed.request)
    return result_of(CurveResult, finished.record, [finished.chapter])


def sizes(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[SizesSettings]) -> SizesResult:
    """A curve at each of several numbers of training rows; `report.html` with a heat map, `grid.json`.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: those of `curve`; `train_sizes=[50, 100]`; `equal="epochs"` or `"steps"`: what all sizes share.
    """
    parsed = parse(model, task, settings, SizesSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(SizesStudy(), _sizes_request(parsed))
    return result_of(SizesResult, finished.record, [finished.chapter])


def rates(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[CurveSettings]) -> RatesResult:
    """A curve at each of several learning rates (`lrs`); `report.html` with a heat map, `rates.json`.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: those of `curve`.
    """
    parsed = parse(model, task, settings, CurveSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(RatesStudy(), parsed.request)
    return result_of(RatesResult, finished.record, [finished.chapter])


def find(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[FindSettings]) -> FindResult:
    """The fewest trained layers that keep a share of the full score, with as few runs as the evidence needs.

    Writes `report.html`, `find.json`, `find.md` and `find.svg` into the output folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: those of `curve`; `keep=0.9`; `confidence=0.95`; `budget`, in full-run equivalents or a
            time such as `"30min"`; `protocol="tuned"`; `save`, a new folder for the model that was found, and
            `bundle`, one for what the task adds to the model; `start="scout"` to try a predicted depth first.
    """
    parsed = parse(model, task, settings, FindSettings, protocol="tuned")
    places = _destinations(parsed.own, parsed.request.model)
    with open_session(parsed, progress) as session:
        finished = session.run(FindStudy(), _find_request(parsed, scouted_start(session, parsed)))
        if places:
            resolved = finished.resolved.resolved
            train_and_save(session, resolved, _spec_to_save(finished.record, resolved, session.options.out), places)
    return result_of(FindResult, finished.record, [finished.chapter])


def _spec_to_save(finding: Finding, resolved: ResolvedRequest, out: Path) -> RunSpec:
    """The run at the answer's depth with the first seed that learned something: no one can use a model that did not."""
    if curve_words.recommends_nothing(finding):
        raise UsageError(f"no model is saved. {curve_words.answer(finding)} `frostline report {out}` shows the result")
    value = value_of(finding.answer)
    found = next(point for point in (finding.full, *finding.points) if value_of(point) == value)
    seed = next(seed for seed in found.seeds if seed not in found.failed_seeds)
    return spec_at(resolved, axis_of(resolved).strategy_of(value), found.learning_rate).with_seed(seed)


def compare(
    model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[CompareSettings]
) -> ComparisonResult:
    """Quality against cost of several strategies.

    Writes `report.html`, `compare.json`, `compare.md` and `compare.svg` into the output folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: those of `curve` without depths; `strategies="full,freeze:3,lora:8"`; the protocol is `tuned` unless
            given.
    """
    parsed = parse(model, task, settings, CompareSettings, protocol="tuned")
    with open_session(parsed, progress) as session:
        finished = session.run(CompareStudy(), _compare_request(parsed))
    return result_of(ComparisonResult, finished.record, [finished.chapter])


def train(model: Any, task: Any, *, progress: Progress | None = None, **settings: Unpack[TrainSettings]) -> RunResult:
    """Trains one model and saves it: as a folder that `from_pretrained` and `pipeline` open, as a bundle, or both.

    Returns the run's result.

    Args:
        model: a Hub name, a folder, or a transformers model.
        task: a known task, a file, a folder, a Hub data set, or rows, as for `curve`.
        progress: shows how it goes; on standard error by default.
        settings: `save`, a new folder for the model, or `bundle`, one for what the task adds to the model, with
            `bundle_dtype`, or both; `frozen`, how many layers to freeze, or `"full"`; or `strategy="lora:8"`; others as
            for `curve`. Without `lr` the line search chooses the learning rate.
    """
    given: dict[str, Any] = dict(settings)
    wanted = strategy_of(given.pop("frozen", None), given.pop("strategy", None))
    if given.get("save") is None and given.get("bundle") is None:
        raise UsageError("give --save, a folder for the model, or --bundle, a folder for what the task adds to it")
    _new_folders(given)
    if given.get("seeds") is not None:
        given["seeds"] = read_one_seed(without_numpy(given["seeds"]))
    protocol: Protocol = "paper" if settings.get("strategy") is None else "tuned"
    parsed = parse(model, task, given, TrainSettings, protocol=protocol)
    places = _destinations(parsed.own, parsed.request.model)
    with open_session(parsed, progress) as session:
        return train_strategy(session, wanted, places)


Command = Literal["curve", "find", "compare", "change"]


def dry_run(model: Any, task: Any, *, command: Command = "curve", **settings: Any) -> Estimate:
    """Runs, time and disk space that a command still takes, from a few timed steps.

    Args:
        model: as for the command.
        task: as for the command.
        command: `curve` (with `train_sizes` too), `find`, `compare` (with `per_class` too) or `change`.
        settings: as for the command.
    """
    check_choice("command", command, get_args(Command))
    if command == "compare" and settings.get("per_class") is not None:
        parsed = parse(model, task, settings, FewSettings)
        with open_session(parsed, None) as session:
            return session.estimate(FewStudy(), few_request(parsed))
    if command == "compare":
        parsed = parse(model, task, settings, CompareSettings, protocol="tuned")
        with open_session(parsed, None) as session:
            return session.estimate(CompareStudy(), _compare_request(parsed))
    if command == "change":
        parsed = change_parsed(model, task, settings)
        with open_session(parsed, None) as session:
            return session.estimate(ChangeStudy(), change_request(parsed))
    if command == "find":
        parsed = parse(model, task, settings, FindSettings, protocol="tuned")
        with open_session(parsed, None) as session:
            return session.estimate(FindStudy(), _find_request(parsed))
    parsed = parse(model, task, settings, SizesSettings)
    with open_session(parsed, None) as session:
        if "train_sizes" in parsed.own:
            return session.estimate(SizesStudy(), _sizes_request(parsed))
        if parsed.own.get("rates_at_depths"):
            return session.estimate(RatesStudy(), parsed.request)
        return session.estimate(CurveStudy(), parsed.request)


def curve_and_plain_loop(
    model: Any, task: Any, settings: CurveSettings, *, progress: Progress | None = None
) -> tuple[CurveResult, float]:
    """A curve, and the seconds that its runs would take one by one in a plain training loop."""
    parsed = parse(model, task, settings, CurveSettings)
    with open_session(parsed, progress) as session:
        finished = session.run(CurveStudy(), parsed.request)
        from frostline.studies.planning.estimate import plain_loop_seconds

        seconds = plain_loop_seconds(session.resolver, finished.resolved)
    return result_of(CurveResult, finished.record, [finished.chapter]), seconds


def _compare_request(parsed: Parsed) -> CompareRequest:
    return CompareRequest(request=parsed.request, strategies=read_strategies(parsed.own.get("strategies", ())))


def _find_request(parsed: Parsed, start: int | None = None) -> FindRequest:
    given = parsed.own.get("budget")
    return FindRequest(
        request=parsed.request,
        budget=None if given is None else read_budget(given),
        n_workers=parsed.options.n_workers,
        start=start,
    )


def _sizes_request(parsed: Parsed) -> SizesRequest:
    if "train_sizes" not in parsed.own:
        raise UsageError("train_sizes is missing; give numbers of training rows, for example 50,100,200")
    equal = check_choice("equal", parsed.own.get("equal", "steps"), get_args(Equal))
    return SizesRequest(
        request=parsed.request,
        train_sizes=read_sizes(parsed.own["train_sizes"]),
        equal="steps" if equal == "steps" else "epochs",
    )


def _destinations(own: Mapping[str, Any], model: str) -> list[Destination]:
    """Where a trained model goes, in the order of writing."""
    folders = _new_folders(own)
    dtype = check_choice("bundle_dtype", own.get("bundle_dtype", "fp32"), get_args(BundleDtype))
    if "bundle" not in folders and "bundle_dtype" in own:
        raise UsageError("bundle_dtype is for a bundle; give bundle, a new folder for it")
    known: dict[str, Callable[[Path], Destination]] = {
        "bundle": lambda folder: _to_bundle(folder, dtype, model),
        "save": to_folder,
    }
    return [known[name](folder) for name, folder in folders.items()]


def _new_folders(own: Mapping[str, Any]) -> dict[str, Path]:
    """The folders to save in, by setting; those that cannot be written are refused before anything is trained."""
    folders = {name: read_folder(name, own[name]) for name in ("bundle", "save") if own.get(name) is not None}
    for name, folder in folders.items():
        check_new_folder(folder, f"--{name}")
    if len({folder.absolute() for folder in folders.values()}) < len(folders):
        raise UsageError(f"save and bundle are both {folders['save']}; give two folders")
    return folders


def _to_bundle(folder: Path, dtype: Any, model: str) -> Destination:
    """A bundle; a base whose weights cannot be compared is refused now."""
    open_weights(model)

    def write(result: RunResult, stack: Stack, inputs: Inputs) -> Sequence[str]:
        from frostline.serving.bundles.making import bundle_run

        return bundle_run(result, stack, inputs, folder, dtype).warnings

    return Destination(folder, {"bundle": str(folder), "bundle-dtype": dtype}, write)
