"""Runs any study: checks its request, does its runs, keeps its results, and writes its files.

Knows no particular study. A session is one call: it owns the executor, the store, the progress display and the live
page, and reads model and data once for everything that is done in it. Settings and data are checked first, and torch
is imported after that: people see most of their mistakes at once.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, final

from frostline.errors import EXIT_CRASHED_RUNS, FrostlineError, check_between
from frostline.execution.events import Listener
from frostline.execution.executor import Executor, make_executor, places_of, starts_at_once
from frostline.execution.progress import ProgressListener
from frostline.execution.sweep import Sweep, Wanted
from frostline.execution.trackers import Trackers
from frostline.model.files.folders import check_model_files, counted_layers
from frostline.records.environment import check_environments, current_environment
from frostline.records.requests import RunOptions, StudyRequest
from frostline.records.results import Environment, RunResult
from frostline.report.chapter import Chapter
from frostline.report.formats.registry import write_report, write_result
from frostline.report.progress.display import Progress, make_progress
from frostline.report.progress.live import LivePage
from frostline.report.terminal import Screen
from frostline.storage import atomic
from frostline.storage.runs import check_place
from frostline.studies.planning.axis import run_cost
from frostline.studies.requests.parse import Parsed, depths_of
from frostline.studies.requests.task_reader import TaskReader
from frostline.studies.study import RecordT, RequestT, ResolvedT, Results, Study, Totals

if TYPE_CHECKING:
    from frostline.studies.planning.estimate import Estimate
    from frostline.studies.requests.resolve import Resolver


class AllCrashedError(FrostlineError):
    """No run finished that the rest depends on."""

    exit_code = EXIT_CRASHED_RUNS


@final
@dataclass(frozen=True)
class Finished(Generic[ResolvedT, RecordT]):
    """A study that is over."""

    resolved: ResolvedT
    record: RecordT
    chapter: Chapter


@final
class Session:
    """One call of a command. Use it as a context manager."""

    def __init__(self, request: StudyRequest, options: RunOptions, progress: Progress) -> None:
        self.request, self.options, self.progress = request, options, progress
        self._reader = TaskReader()
        self._began = time.monotonic()
        self._resources = contextlib.ExitStack()
        self._executor: Executor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._resources.close()

    def run(self, study: Study[RequestT, ResolvedT, RecordT], request: RequestT) -> Finished[ResolvedT, RecordT]:
        """Does what a study wants until it is over, and writes its files into the output folder."""
        resolved, results, done = self._run(study, request)
        totals = Totals(done=done, wall_seconds=time.monotonic() - self._began)
        store, out = self.resolver.store, self.options.out
        record = study.build(resolved, results, totals, store)
        chapter = study.chapter_of(record, resolved, results, store)
        write_result(chapter, out, study.name)
        write_report([chapter], out / "report.html")
        return Finished(resolved, record, chapter)

    def run_beside(self, study: Study[RequestT, ResolvedT, RecordT], request: RequestT) -> None:
        """Does a study's runs and writes no file: another study's chapter shows them."""
        self._run(study, request)

    def estimate(self, study: Study[RequestT, ResolvedT, RecordT], request: RequestT) -> Estimate:
        """What a study will still take, from a few timed steps."""
        study.check(request)
        self.read_rows()
        from frostline.studies.planning.estimate import estimate_runs

        resolved = study.resolve(request, self.resolver)
        results = study.replay(resolved, self.resolver.store)
        return estimate_runs(
            self.resolver,
            study.base(resolved),
            study.runs_ahead(resolved, results),
            places=places_of(self.options, **self._for_executor),
            is_cluster=self.options.on != "local",
            most=study.most_ahead(resolved, results),
            start_seconds=time.monotonic() - self._began,
        )

    def read_rows(self, *, with_workers: bool = False) -> None:
        """Looks at the model's files and reads the data, so that their faults are found before torch is imported.

        Args:
            with_workers: workers start meanwhile, if that takes this process no time.
        """
        with atomic.explained(f"--out {self.options.out}"):
            check_place(self.options.out)
        check_model_files(self.request.model)
        if (n_layers := counted_layers(self.request.model)) is not None:
            depths_of(self.request, n_layers)
        if with_workers and starts_at_once(self.options):
            _ = self.executor
        self._reader.load(self._reader.resolve(self.request.task))

    @functools.cached_property
    def resolver(self) -> Resolver:
        """What reads the model, fills in defaults and opens the store."""
        from frostline.studies.requests.resolve import Resolver

        return Resolver(self.options.out, self.options.max_cache_bytes, self._reader)

    def sweep(self, listeners: Sequence[Listener] = (), nearby: Sequence[str] = ()) -> Sweep:
        """What does runs for this session; the request must be resolved."""
        n_layers = self.resolver.pretrained(self.request.model).n_layers
        display = ProgressListener(self.progress, lambda spec: run_cost(spec, n_layers))
        return Sweep(
            store=self.resolver.store,
            executor=self.executor,
            listeners=(display, *listeners),
            rerun=self.options.rerun,
            nearby=nearby,
            same_as=self._same_as,
        )

    def check_environments(self, stored: Iterable[RunResult]) -> None:
        """Raises if stored runs were made in another environment and the user does not want to mix them."""
        if self._same_as is not None:
            check_environments([result.environment for result in stored], self._same_as)

    @functools.cached_property
    def _same_as(self) -> Environment | None:
        """The environment that stored runs must have been made in; None: any."""
        if not self.options.same_environment:
            return None
        from frostline.training.device.settings import device_facts, pick_device

        device = pick_device(self.request.device)
        return current_environment(device, **device_facts(device))

    @property
    def executor(self) -> Executor:
        """Who does the runs, started when it is first asked for."""
        if self._executor is None:
            executor = make_executor(self.options, **self._for_executor)
            self._executor = self._resources.enter_context(executor)
        return self._executor

    @property
    def _for_executor(self) -> dict[str, Any]:
        """What an executor must know besides the options."""
        n_workers, request = self.options.n_workers, self.request
        if n_workers is not None:
            check_between("workers", n_workers, 1, 1024)
        return {"n_workers": n_workers, "threads": request.threads, "device": request.device}

    def _run(
        self, study: Study[RequestT, ResolvedT, RecordT], request: RequestT
    ) -> tuple[ResolvedT, Results, frozenset[str]]:
        study.check(request)
        self.read_rows(with_workers=True)
        trackers = Trackers(self.options.trackers, self.options.out, self.progress.note)
        _ = self.executor  # workers import their libraries while this process reads the model
        resolved = study.resolve(request, self.resolver)
        if self.options.same_environment and self.options.rerun != "always":
            self.check_environments(study.replay(resolved, self.resolver.store).finished.values())
        self._write_settings(study, resolved)
        for line in study.describe(resolved, self.resolver):
            self.progress.note(line)
        results, done = Results(), set[str]()
        page = LivePage(self.options.out, lambda: self._chapter(study, resolved, results, done), self.progress.note)
        with self.sweep((trackers, _PageListener(page, done)), study.nearby(resolved)) as sweep:
            for wanted in self._rounds(study, resolved, results, sweep):
                for outcome in sweep.do(wanted, lambda: study.likely_runs(resolved, results)):
                    results.add(outcome)
        if not study.is_showable(resolved, results):
            raise AllCrashedError(f"every run that the {study.name} needs crashed; the first: {sweep.crashes[0].error}")
        return resolved, results, frozenset(done)

    def _rounds(
        self, study: Study[Any, ResolvedT, Any], resolved: ResolvedT, results: Results, sweep: Sweep
    ) -> Iterator[list[Wanted]]:
        """What is missing of what the study wants, until nothing is. Results are added between two rounds."""
        said: set[str] = set()
        while True:
            for message in study.messages(resolved, results):
                if message not in said:
                    self.progress.note(message)
                    said.add(message)
            new = [wanted for wanted in study.next_runs(resolved, results) if not results.has(wanted)]
            _drop_checkpoints(sweep, results, new)
            if not new:
                return
            sweep.plan(study.runs_ahead(resolved, results))
            yield new

    def _chapter(
        self, study: Study[Any, ResolvedT, Any], resolved: ResolvedT, results: Results, done: set[str]
    ) -> Chapter | None:
        return study.chapter_so_far(resolved, results, self.resolver.store, Totals(done=frozenset(done)))

    def _write_settings(self, study: Study[Any, ResolvedT, Any], resolved: ResolvedT) -> None:
        out = self.options.out
        atomic.write(out / f"{study.name}.yaml", study.config(resolved, out, self.options.max_cache_bytes))


@contextlib.contextmanager
def open_session(parsed: Parsed, progress: Progress | None) -> Iterator[Session]:
    """A session for the settings of a command; progress is shown on standard error unless `progress` is given."""
    shown = progress or make_progress(Screen(stderr=True))
    with shown, Session(parsed.request, parsed.options, shown) as session:
        yield session


@final
@dataclass
class _PageListener(Listener):
    """Keeps the live page up to date, and counts what was done in this call."""

    page: LivePage
    done: set[str]

    def finished(self, result: Any) -> None:
        """A run was done and is stored."""
        self.done.add(result.key)
        self.page.renew()


def _drop_checkpoints(sweep: Sweep, results: Results, new: Sequence[Wanted]) -> None:
    """Removes the checkpoints of paused runs that nobody will continue; a full model's takes 12 bytes a parameter."""
    continued = {wanted.spec.key for wanted in new}
    for key, _ in results.paused:
        if key not in continued:
            sweep.store.drop_checkpoint(key)
