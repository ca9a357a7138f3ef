"""One trained model, handed over as one or more folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from frostline.analysis import has_failed
from frostline.errors import UsageError, check_between
from frostline.execution.progress import ProgressListener, label
from frostline.model.files.folders import counted_layers
from frostline.records.requests import ResolvedRequest
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.storage import atomic
from frostline.strategies import Freeze, Full, Strategy, parse
from frostline.studies.driver import AllCrashedError, Session
from frostline.studies.planning.axis import run_cost, spec_at
from frostline.studies.planning.protocols import Programme, finished_line_searches, rate_messages
from frostline.studies.planning.race import best_rate
from frostline.studies.requests.config_file import resolved_config, train_settings
from frostline.studies.study import Results

if TYPE_CHECKING:
    from frostline.model.stack import Stack
    from frostline.studies.requests.resolve import Inputs


@final
@dataclass(frozen=True)
class Destination:
    """A folder that a trained model goes to."""

    folder: Path
    settings: Mapping[str, object]
    """the settings that say so, by flag name"""
    write: Callable[[RunResult, Stack, Inputs], Sequence[str]]
    """writes the folder; returns what the user should know about it"""


def to_folder(folder: Path) -> Destination:
    """An ordinary transformers folder. It comes last: saving merges added modules into the model."""

    def write(result: RunResult, stack: Stack, inputs: Inputs) -> Sequence[str]:
        from frostline.saving.save import save_model

        save_model(result, stack, inputs.pretrained.tokenizer, folder)
        return ()

    return Destination(folder, {"save": str(folder)}, write)


def strategy_of(frozen: int | str | None, strategy: str | None) -> Strategy:
    """What to train, from either of the two settings that say it."""
    if (frozen is None) == (strategy is None):
        raise UsageError("give either frozen (how many layers to freeze, or full) or strategy (for example lora:8)")
    if strategy is not None:
        return parse(strategy)
    if str(frozen) != "full" and not str(frozen).isdecimal():
        raise UsageError(f"frozen is {frozen!r}; give how many layers to freeze, or full")
    return Full() if str(frozen) == "full" else Freeze(int(str(frozen)))


def train(session: Session, strategy: Strategy, places: Sequence[Destination]) -> RunResult:
    """Trains one strategy with the request's first seed, and writes the model to its places, in their order."""
    session.read_rows()
    if isinstance(strategy, Freeze) and (n_layers := counted_layers(session.request.model)) is not None:
        check_between("frozen", strategy.n_frozen, 0, n_layers)  # before torch is imported
    resolver, options = session.resolver, session.options
    resolved = resolver.resolve("train", session.request, needs_depth=strategy != Full())
    if isinstance(strategy, Freeze):
        check_between("frozen", strategy.n_frozen, 0, resolved.n_layers)
    kind = resolved.base.task.kind
    assert kind is not None, "the task of a resolved request is resolved"
    strategy = resolver.named(resolved, strategy).resolved(resolved.n_layers, kind)
    resolver.plan(resolved, strategy)
    spec = spec_at(resolved, strategy, _rate(session, resolved, strategy))
    limit = options.max_cache_bytes
    asked = {name: value for place in places for name, value in place.settings.items()}
    settings = resolved_config("train", resolved, train_settings(spec, asked), options.out, limit)
    atomic.write(options.out / "train.yaml", settings)
    result = train_and_save(session, resolved, spec, places)
    for warning in result.warnings:
        session.progress.note(f"warning: {warning}")
    return result


def train_and_save(
    session: Session, resolved: ResolvedRequest, spec: RunSpec, places: Sequence[Destination]
) -> RunResult:
    """Does one run in this process and writes its model; the result goes into the store."""
    from frostline.training.forward import DivergedError
    from frostline.training.run import Runner

    progress = session.progress
    events = ProgressListener(progress, lambda one: run_cost(one, resolved.n_layers))
    epochs = "1 epoch" if spec.epochs == 1 else f"{spec.epochs} epochs"
    rate = f" at learning rate {spec.learning_rate:g}" if spec.learning_rate else ""
    progress.note(f"training {spec.strategy}{rate}, {epochs}, seed {spec.seed}")
    events.planned([spec])
    events.started(spec)
    runner = Runner(session.options.max_cache_bytes)
    runner.prefixes.say = events.message
    result, stack = runner.train(spec, lambda record: events.epoch(spec, record))
    events.finished(result)
    session.resolver.store.put(result)
    if result.diverged:
        raise DivergedError(f"{label(spec)}: training diverged, so no model is saved; try a lower --lr")
    for place in places:
        for warning in place.write(result, stack, session.resolver.inputs(resolved)):
            progress.note(f"warning: {warning}")
    where = " and ".join(str(place.folder) for place in places)
    rate = f", learning rate {spec.learning_rate:g}" if spec.learning_rate else ""
    score = f"{spec.task.metric} {result.score:.4f} on {result.n_dev} dev rows (chance {result.chance:.4f})"
    progress.note(f"saved {spec.strategy} (seed {spec.seed}{rate}) in {where}: {score}")
    if has_failed(result):
        progress.note("warning: this model learned nothing: its score is no better than with shuffled labels")
    return result


def _rate(session: Session, resolved: ResolvedRequest, strategy: Strategy) -> float:
    """The rate given, else the one that a finished line search chose, else that of a search done now."""
    rates, store = resolved.request.learning_rates, session.resolver.store
    if not strategy.has_rate:
        return 0.0
    if len(rates) == 1:
        return rates[0]
    finished = finished_line_searches(store, resolved) if resolved.request.protocol == "paper" else []
    if finished:
        found = [result for spec in max(finished, key=len) if (result := store.get(spec.key)) is not None]
        session.check_environments(found)
        return best_rate(found)
    programme, results = Programme(resolved, {"it": strategy}), Results()
    with session.sweep() as sweep:
        while new := [wanted for wanted in programme.searching(results) if not results.has(wanted)]:
            sweep.plan(programme.searches["it"].ahead(results))
            for outcome in sweep.do(new):
                results.add(outcome)
    for message in rate_messages(programme, results):
        session.progress.note(message)
    chosen = programme.rates(results)
    if "it" not in chosen:
        raise AllCrashedError(f"every run of the line search crashed; the first: {sweep.crashes[0].error}")
    return chosen["it"]
