from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import Recorder, Toy, children, fork_servers_of, is_alive, numbers, run_all, workers_of
from forked_commands import QuickForkServer
from frostline.execution import local
from frostline.execution.executor import Job
from frostline.execution.fork_server import ForkedProcess, ForkServer, Log
from frostline.execution.local import LocalProcesses
from frostline.execution.transport import receive, send
from frostline.records.results import Crash, EpochRecord, RunResult
from frostline.records.specs import RunSpec
from frostline.testing.executors import worker_pids
from frostline.testing.models import make_spec

own_fork_servers = pytest.mark.usefixtures("own_fork_servers")


@dataclass(frozen=True)
class Processes:
    """Ids of the living processes that fork workers for this one, and of the workers."""

    servers: Callable[[], set[int]]
    workers: Callable[[], set[int]]


FORKED = Processes(
    lambda: workers_of(os.getpid()),
    lambda: {pid for server in workers_of(os.getpid()) for pid, _ in children(server)},
)
"""Their fork servers are themselves forked."""
OWN = Processes(lambda: fork_servers_of(os.getpid()), lambda: workers_of(os.getpid()))


@pytest.fixture(params=["forked", pytest.param("own", marks=pytest.mark.thorough)])
def processes(request: pytest.FixtureRequest) -> Processes:
    """`make test` kills processes below a fork server that is itself forked: a start of its own imports torch."""
    if request.param == "own":
        request.getfixturevalue("own_fork_servers")
    return OWN if request.param == "own" else FORKED


# A library that prints, from before a worker's first line to its last, to Python's stdout and past it.
NOISE = """
import os, pathlib, threading, time

def talk():
    while True:
        print("noise")
        os.write(1, b'{"result": 1} and no end of line')
        time.sleep(0.005)

def begin():
    print('{"crash": "before the first job"}', flush=True)
    threading.Thread(target=talk, daemon=True).start()
    pathlib.Path(os.environ["NOISE"], str(os.getpid())).touch()

os.register_at_fork(after_in_child=begin)
"""

PARENT = """
import json, sys
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.execution.fork_server import Log
from frostline.execution.local import LocalProcesses
from frostline.records.specs import RunSpec

class Printer(Listener):
    def started(self, spec): print("started", flush=True)
    def epoch(self, spec, record): print("epoch", flush=True)

specs = [RunSpec.from_json(spec) for spec in json.loads(sys.stdin.readline())]
with LocalProcesses(1, threads=1, max_cache_bytes=2**20) as executor:
    for spec in specs:
        executor.start(Job(spec), Printer())
    for _ in specs:
        executor.outcome()
"""


@pytest.fixture(scope="module")
def spec(toy: Toy) -> RunSpec:
    from frostline.testing.models import make_spec

    return make_spec(toy.model, toy.train, layout="packed")


@pytest.fixture(scope="module")
def specs(spec: RunSpec) -> list[RunSpec]:
    cached = [spec.replace(strategy="freeze:2", is_cached=True, seed=seed) for seed in range(3)]
    return [spec, spec.replace(seed=1), *cached, spec.replace(strategy="freeze:1", is_cached=True)]


@pytest.fixture(scope="module")
def in_this_process(specs: list[RunSpec]) -> dict[str, RunResult]:
    from frostline.training.run import Runner

    runner = Runner()
    return {spec.key: runner.run(spec) for spec in specs}


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noise")
    (folder / "sitecustomize.py").write_text(NOISE)
    return folder


@pytest.fixture(scope="module")
def executor(noise: Path) -> Iterator[LocalProcesses]:
    """Two workers in which a library prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(noise), prepend=os.pathsep)
        patch.setenv("NOISE", str(noise))
        patch.setattr(local, "ForkServer", ForkServer)
        made = LocalProcesses(2, threads=1, max_cache_bytes=2**30)
    with made:
        yield made


def test_every_spec_has_its_outcome_and_two_processes_give_the_bits_of_this_one(
    executor: LocalProcesses, specs: list[RunSpec], in_this_process: dict[str, RunResult], noise: Path
) -> None:
    events = Recorder()
    outcomes = list(run_all(executor, specs, events))
    assert {outcome.key for outcome in outcomes} == {spec.key for spec in specs}
    assert len(outcomes) == len(specs)
    for outcome in outcomes:
        assert isinstance(outcome, RunResult), outcome
        assert numbers(outcome) == numbers(in_this_process[outcome.key])
    assert events.began == {spec.key: 1 for spec in specs}
    assert events.epochs == {spec.key: [1, 2] for spec in specs}
    assert worker_pids() >= workers_of(os.getpid()), "the conformance suite finds them too"
    # That the library did print is what makes this a test.
    assert {int(file.name) for file in noise.iterdir() if file.name.isdecimal()} == workers_of(os.getpid())


def test_no_specs_no_outcomes(executor: LocalProcesses) -> None:
    assert list(run_all(executor, [], Recorder())) == []


def test_a_run_that_raises_is_a_crash_with_its_traceback_and_the_others_go_on(
    executor: LocalProcesses, spec: RunSpec, in_this_process: dict[str, RunResult]
) -> None:
    before = workers_of(os.getpid())
    diverges, impossible = spec.replace(learning_rate=1e30), spec.replace(strategy="freeze:99")
    found = {outcome.key: outcome for outcome in run_all(executor, [diverges, impossible, spec], Recorder())}
    assert workers_of(os.getpid()) == before, "a run that raises does not cost its process"
    diverged, crash = found[diverges.key], found[impossible.key]
    assert isinstance(diverged, RunResult)
    assert diverged.diverged, "a run that diverged has failed; it did not crash"
    assert isinstance(crash, Crash)
    assert crash.spec == impossible
    assert crash.error.startswith("UsageError: strategy 'freeze:99': the model has 3 layers")
    assert crash.traceback.startswith("Traceback")
    assert "in plan" in crash.traceback
    result = found[spec.key]
    assert isinstance(result, RunResult)
    assert numbers(result) == numbers(in_this_process[spec.key])


def test_what_a_listener_raises_reaches_the_caller(executor: LocalProcesses, spec: RunSpec) -> None:
    def fail(spec: RunSpec, record: EpochRecord) -> None:
        raise RuntimeError("the display is gone")

    with pytest.raises(RuntimeError, match="the display is gone"):
        list(run_all(executor, [spec.replace(epochs=1)], Recorder(fail)))
    assert executor.n_free == 2
    (outcome,) = run_all(executor, [spec], Recorder())
    assert outcome.key == spec.key, "the answers to the failed job are not those to the next one"


def test_a_killed_worker_is_one_crash_and_another_takes_its_place(
    spec: RunSpec, specs: list[RunSpec], in_this_process: dict[str, RunResult], processes: Processes
) -> None:
    others = processes.workers()
    victims: list[int] = []

    def kill(asked: RunSpec, record: EpochRecord) -> None:
        if asked.epochs > 2 and not victims:
            (victim,) = processes.workers() - others
            victims.append(victim)
            os.kill(victim, signal.SIGKILL)

    doomed = spec.replace(epochs=10_000)
    with LocalProcesses(1, threads=1, max_cache_bytes=2**30) as executor:
        outcomes = list(run_all(executor, [specs[0], doomed, *specs[1:]], Recorder(kill)))
        (survivor,) = processes.workers() - others
    assert survivor not in victims
    assert len(outcomes) == len(specs) + 1
    (crash,) = [outcome for outcome in outcomes if isinstance(outcome, Crash)]
    assert crash.spec == doomed
    assert "SIGKILL" in crash.error
    results = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    # One worker, or another one after it: the same bits as two.
    assert {r.key: numbers(r) for r in results} == {key: numbers(r) for key, r in in_this_process.items()}
    assert processes.workers() == others, "workers end with the executor"


def test_a_worker_ends_with_a_parent_that_is_killed_in_the_middle_of_a_run(
    toy: Toy, spec: RunSpec, tmp_path: Path
) -> None:
    from frostline.testing.models import make_spec, make_task

    # One epoch of minutes: a worker that only notices when it reports would be there for as long.
    endless = make_spec(toy.model, make_task(tmp_path / "long.csv", n_rows=20_000), epochs=1, batch_size=1)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps([spec.replace(epochs=1).to_json(), endless.to_json()]) + "\n")
    parent.stdin.flush()
    assert [parent.stdout.readline().strip() for _ in range(3)] == ["started", "epoch", "started"]
    time.sleep(2)
    (worker,) = workers_of(parent.pid)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    is_orphan = is_alive(worker)
    if is_orphan:
        os.kill(worker, signal.SIGKILL)
    assert not is_orphan


def test_an_answer_that_a_kill_cuts_off_is_one_dead_worker() -> None:
    whole = io.BytesIO()
    send(whole, {"result": 1}, [b"0123456789", b"", memoryview(b"abc")])
    assert receive(io.BytesIO(whole.getvalue())) == ({"result": 1}, [b"0123456789", b"", b"abc"])
    for length in range(len(whole.getvalue())):
        assert receive(io.BytesIO(whole.getvalue()[:length])) is None


# Each worker that is forked sends the next of these answers to its first job, and is killed or lives on.
ODD_ANSWERS = {
    "half a line": b'{"result": {"spec": {"mod',
    "half of the bytes": b'{"paused": {}, "n_bytes": [100]}\nhalf of the bytes',
    "broken JSON": b'{"result": {"spec": \n',
    "not text": b"\xff\xfe\x00\n",
    "deep JSON": b"[" * 5_000 + b"\n",
    "not an object": b"[]\n",
    "no number of bytes": b'{"result": {}}\n',
    "no bytes": b'{"result": {}, "n_bytes": [-1]}\n',
    "an empty result": b'{"result": {}, "n_bytes": []}\n',
    "an unknown answer": b'{"answer": 42, "n_bytes": []}\n',
}
SEND_ODDLY = """
import json, os, sys

answers = json.loads(os.environ["ANSWERS"])

def odd(stream, content, attached=()):
    stream.write(bytes.fromhex(answer))
    stream.flush()
    if os.environ["DIES"]:
        os.kill(os.getpid(), 9)

def choose():
    global answer
    answer = answers.pop(0) if answers else None

def answer_oddly():
    if answer is not None:
        sys.modules["frostline.execution.worker"].send = odd

os.register_at_fork(before=choose, after_in_child=answer_oddly)
"""


@pytest.mark.parametrize("dies", ["", "yes"])
def test_an_answer_that_cannot_be_read_is_a_crash_and_not_the_end(
    spec: RunSpec, in_this_process: dict[str, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    # One that waits for the rest of a message waits for as long as the sender lives.
    names = [name for name in ODD_ANSWERS if dies or "half" not in name]
    (tmp_path / "sitecustomize.py").write_text(SEND_ODDLY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("ANSWERS", json.dumps([ODD_ANSWERS[name].hex() for name in names]))
    monkeypatch.setenv("DIES", dies)
    monkeypatch.setattr("frostline.execution.local._SECONDS_TO_DIE", 10.0 if dies else 0.1)
    specs = [spec.replace(seed=seed) for seed in range(1, len(names) + 1)]
    with LocalProcesses(1, threads=1, max_cache_bytes=0) as executor:
        *crashes, last = run_all(executor, [*specs, spec], Recorder())
    assert len(crashes) == len(specs)
    for name, asked, crash in zip(names, specs, crashes, strict=True):
        assert isinstance(crash, Crash), name
        assert crash.spec == asked
        assert ("signal SIGKILL" if dies else "it sent no answer that can be read") in crash.error, name
    assert isinstance(last, RunResult), "the next worker does its run"
    assert numbers(last) == numbers(in_this_process[spec.key])


def test_a_log_keeps_the_end_of_what_is_printed() -> None:
    log = Log()
    printing = subprocess.Popen(["sh", "-c", "head -c 200000000 /dev/zero; echo the end"], stdout=log.file)
    log.close()
    most = 0
    while printing.poll() is None:
        most = max(most, len(log._kept))
        time.sleep(0.001)
    said = log.text(60)
    assert said.endswith("\0the end\n")
    assert len(said) == 2**16
    assert most <= 4 * 2**16, "what is kept in memory does not grow with what is printed"


def test_if_the_process_that_forks_workers_is_killed_its_runs_crash_and_the_next_ones_do_not(
    spec: RunSpec, in_this_process: dict[str, RunResult], processes: Processes
) -> None:
    others = processes.servers()

    def kill(asked: RunSpec, record: EpochRecord) -> None:
        for victim in processes.servers() - others if asked.epochs > 2 else ():
            os.kill(victim, signal.SIGKILL)

    with LocalProcesses(1, threads=1, max_cache_bytes=0) as executor:
        crash, result = run_all(executor, [spec.replace(epochs=10_000), spec], Recorder(kill))
    assert isinstance(crash, Crash)
    assert "SIGKILL" in crash.error
    assert isinstance(result, RunResult)
    assert numbers(result) == numbers(in_this_process[spec.key])
    assert processes.servers() == others


@own_fork_servers
def test_a_process_that_cannot_import_what_workers_need_says_why(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with LocalProcesses(1, threads=1, max_cache_bytes=0) as executor:
        (outcome,) = run_all(executor, [spec], Recorder())
    assert isinstance(outcome, Crash)
    assert outcome.error == "the process of this run died (exit code 1)"
    assert "libcudart.so is missing" in outcome.traceback


@own_fork_servers
def test_leaving_does_not_wait_for_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)")  # as Ctrl-C in the first seconds of a command
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    others = fork_servers_of(os.getpid())
    began = time.monotonic()
    with LocalProcesses(2, threads=1, max_cache_bytes=0):
        (server,) = fork_servers_of(os.getpid()) - others
    assert time.monotonic() - began < 300
    assert not is_alive(server)


def test_a_fork_that_fails_leaves_no_process(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two workers cannot be forked: leaving the context ends the first, and starts nothing again."""
    fork, begun = QuickForkServer.fork, list[ForkedProcess]()

    def fail_second(server: QuickForkServer, jobs: int, answers: int, log: int) -> ForkedProcess:
        if begun:
            raise OSError("no more processes")
        begun.append(fork(server, jobs, answers, log))
        return begun[0]

    monkeypatch.setattr(QuickForkServer, "fork", fail_second)
    executor = LocalProcesses(2, threads=1, max_cache_bytes=0)
    with pytest.raises(OSError, match="no more processes"), executor:
        executor.start(Job(make_spec(toy.model, toy.train)), Recorder())
    assert begun[0].code(timeout=10) is not None
    assert executor._fork_server._process is None
