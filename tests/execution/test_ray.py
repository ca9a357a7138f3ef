"""Runs on a real Ray cluster of two nodes on this machine; see `clusters.py`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.clusters import TwoNodes, two_nodes

from commands import Finished, Recorder, Toy, frostline, numbers, run_files, runs_in, start
from frostline.errors import UsageError
from frostline.execution.cluster import places
from frostline.execution.cluster.connection import connected
from frostline.execution.cluster.executor import DEATHS, RayCluster
from frostline.execution.cluster.nodes import Share, free_resources, living_nodes
from frostline.execution.cluster.places import Hiring
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.testing.executors import PATIENCE, check_executor
from frostline.testing.models import make_spec
from frostline.training.run import Runner


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with two_nodes(tmp_path_factory.mktemp("cluster")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FROSTLINE_CACHE", str(found.driver_root / "cache"))
        yield found


@pytest.fixture(scope="module")
def driver_toy(cluster: TwoNodes, toy: Toy) -> Toy:
    """The toy below the driver's folder."""
    folder = cluster.driver_root / "toy"
    shutil.copytree(toy.model, folder / "model")
    return Toy(folder / "model", *(Path(shutil.copy(file, folder)) for file in (toy.train, toy.dev)))


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Paths of the driver that have another name from the first start of a run on. Until then, they are there."""
    start, paths = RayCluster.start, list[Path]()

    def start_and_rename(executor: RayCluster, job: Job, listener: Listener) -> None:
        start(executor, job, listener)
        for path in paths:
            if path.exists():
                path.rename(path.with_name(f"renamed {path.name}"))

    monkeypatch.setattr(RayCluster, "start", start_and_rename)
    yield paths
    put_back(paths)


def put_back(paths: list[Path]) -> None:
    for path in paths:
        if (renamed := path.with_name(f"renamed {path.name}")).exists():
            renamed.rename(path)


def make(cluster: TwoNodes, most: int | None = None, share: Share | None = None, *, waits: bool = True) -> RayCluster:
    hiring = Hiring(share=share or Share(), most=most, threads=1, max_cache_bytes=2**30)
    return RayCluster(hiring, address=cluster.address, waits=waits)


class Placed(Recorder):
    """Records where runs are done, when that was said, and messages."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, list[str]] = {}
        self.at: dict[str, float] = {}
        self.messages: list[str] = []

    def placed(self, spec: RunSpec, node: str) -> None:
        self.nodes.setdefault(spec.key, []).append(node)
        self.at.setdefault(node, time.monotonic())

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_a_cluster_keeps_the_contract(cluster: TwoNodes, renamed: list[Path]) -> None:
    folder = cluster.driver_root / "contract"
    renamed += [folder / "model", folder / "task.csv"]

    def make_again(n_places: int) -> RayCluster:
        put_back(renamed)
        return make(cluster, n_places)

    check_executor(make_again, folder, cluster.worker_pids, deaths=DEATHS)
    assert cluster.opened() == []


def test_a_curve_has_the_bits_of_local_runs_and_no_driver_path_is_opened(
    cluster: TwoNodes, driver_toy: Toy, undisturbed: Finished, renamed: list[Path]
) -> None:
    renamed += [driver_toy.model, driver_toy.train, driver_toy.dev]
    out = cluster.driver_root / "curve"
    before, states = cluster.prefix_rows(), cluster.driver_root / "cache" / "prefix"
    of_local_runs = sorted(states.rglob("*"))
    done = frostline(*driver_toy.curve, "--on", "ray", "--ray-address", cluster.address, "--json", out=out)
    assert done.code == 0, done.stderr
    assert not driver_toy.model.exists(), "it was renamed"
    found, wanted = runs_in(out), runs_in(undisturbed.out)
    assert {key: numbers(run) for key, run in found.items()} == {key: numbers(run) for key, run in wanted.items()}
    assert {run.spec.model for run in found.values()} == {str(driver_toy.model)}, "stored with the driver's names"
    assert {run.spec.task.source for run in found.values()} == {str(driver_toy.train)}
    assert {tuple(run.warnings) for run in found.values()} == {tuple(run.warnings) for run in wanted.values()}
    assert done.json["operating_points"] == undisturbed.json["operating_points"]
    assert " on near" in done.stderr, "progress names nodes"
    assert " on far" in done.stderr
    assert cluster.opened() == []
    counted = {cache: n_rows - before.get(cache, 0) for cache, n_rows in cluster.prefix_rows().items()}
    assert counted == {str(cluster.cache(name)): 72 + 24 for name in ("near", "far")}, "once per node"
    assert sorted(states.rglob("*")) == of_local_runs, "prefix states stay where they were computed"


def test_a_dry_run_counts_the_hours_of_the_nodes_that_it_sees(cluster: TwoNodes, driver_toy: Toy) -> None:
    on_ray = ("--on", "ray", "--ray-address", cluster.address, "--dry-run")
    out = cluster.driver_root / "planned"
    found = frostline(*driver_toy.curve, *on_ray, "--json", out=out)
    assert found.code == 0, found.stderr
    assert found.json["nodes"] == 2
    assert found.json["node_hours"] == pytest.approx(2 * found.json["minutes"] / 60)
    few = frostline(*driver_toy.curve, *on_ray, "--workers", "1", out=out)
    assert " on 1 node (" in few.stdout
    large = frostline(*driver_toy.curve, *on_ray, "--memory-per-run", "100000", out=out)
    assert large.code == 2
    assert "no node is large enough for a run, which takes 1 CPU and 100000 GB of memory" in large.stderr


def test_a_lost_node_and_an_added_one_leave_the_same_bits(cluster: TwoNodes, driver_toy: Toy) -> None:
    spec = make_spec(driver_toy.model, driver_toy.train, layout="packed", epochs=60)
    events = Placed()
    with full(cluster) as free_a_cpu, make(cluster) as executor:
        with cluster.added("doomed") as end:
            executor.start(Job(spec), events)
            wait_until(lambda: spec.key in events.epochs)
            end()
        free_a_cpu()
        again = executor.outcome()
        first, second = events.nodes[spec.key]
        assert (first, second in ("near", "far")) == ("doomed", True), "done again where there is room"
        assert any("node doomed was lost; the run starts again" in text for text in events.messages)
        assert isinstance(again, RunResult)
        assert numbers(again) == numbers(Runner(max_cache_bytes=0).run(spec)), "the same bits"
        assert events.epochs[spec.key] == list(range(1, 61)), "no epoch is reported twice"
        for seed in (1, 2):  # one more than there are places
            executor.start(Job(spec.replace(seed=seed, epochs=100_000)), events)
        with cluster.added("added"):
            added_at = time.monotonic()
            wait_until(lambda: "added" in events.at)
            assert events.at["added"] - added_at < 10, "an added node takes runs within ten seconds"
            for seed in (1, 2):
                executor.stop(spec.replace(seed=seed, epochs=100_000))
    assert cluster.opened() == []


@contextlib.contextmanager
def full(cluster: TwoNodes) -> Iterator[Callable[[], None]]:
    """Keeps the CPUs of both nodes; gives what frees one of them."""
    with connected(cluster.address) as ray:
        held = [ray.remote(lambda: time.sleep(600)).options(num_cpus=1, max_retries=0).remote() for _ in range(2)]
        wait_until(lambda: not any(Share().fits(free) for free in free_resources().values()))
        yield lambda: ray.cancel(held.pop(), force=True)
        for task in held:
            ray.cancel(task, force=True)


def wait_until(is_so: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert is_so()


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
def test_a_driver_that_is_interrupted_or_killed_does_only_what_is_missing(
    cluster: TwoNodes, driver_toy: Toy, undisturbed: Finished, how: signal.Signals
) -> None:
    out = cluster.driver_root / f"ended by {how.name}"
    on_ray = ("--on", "ray", "--ray-address", cluster.address, "--workers", "1", "--json")
    command = (*driver_toy.curve, *on_ray, "--out", str(out))
    driver = start(*command, cwd=cluster.driver_root, own_group=True)
    wait_until(lambda: len(run_files(out)) >= 5)
    os.killpg(driver.pid, how)
    _, stderr = driver.communicate()
    assert driver.returncode == (128 + how if how == signal.SIGINT else -how), stderr
    if how == signal.SIGINT:
        assert "interrupted; finished runs are kept" in stderr
    wait_until(lambda: not cluster.worker_pids())
    kept = run_files(out)
    done = frostline(*driver_toy.curve, *on_ray, out=out)
    assert done.code == 0, done.stderr
    assert done.json["runs"] == {"done": len(runs_in(out)) - len(kept), "reused": len(kept), "crashed": 0}
    assert run_files(out).items() >= kept.items(), "no finished run was done again"
    found, wanted = runs_in(out), runs_in(undisturbed.out)
    assert {key: numbers(run) for key, run in found.items()} == {key: numbers(run) for key, run in wanted.items()}
    with connected(cluster.address) as ray:
        assert {node.name for node in living_nodes(ray)} == {"near", "far"}, "the cluster is as it was"


def test_a_cluster_without_room_says_so_and_waits_or_stops(cluster: TwoNodes, driver_toy: Toy) -> None:
    spec, events, large = make_spec(driver_toy.model, driver_toy.train), Placed(), Share(cpus=99)
    with make(cluster, share=large) as executor:
        began = time.monotonic()
        executor.start(Job(spec), events)
        assert executor.outcome(timeout=8) is None
        assert time.monotonic() - began < 10
    (said,) = events.messages
    assert said.startswith("no node is large enough for a run, which takes 99 CPU; ")
    assert "far has 1 CPU" in said
    with full(cluster), make(cluster, waits=False) as executor:
        began = time.monotonic()
        executor.start(Job(spec), events)
        with pytest.raises(UsageError, match=r"has no room for a run, which takes 1 CPU; .*--no-wait"):
            executor.outcome()
        assert time.monotonic() - began < 10


def test_a_worker_whose_room_was_taken_is_reported(
    cluster: TwoNodes, driver_toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_SECONDS_BEFORE_SLOW", 2.0)
    spec, events = make_spec(driver_toy.model, driver_toy.train), Placed()
    with full(cluster), make(cluster) as executor:
        executor.start(Job(spec), events)
        with executor._places.lock, connected(cluster.address) as ray:  # as if somebody had been faster
            executor._places._start(next(node for node in living_nodes(ray) if node.name == "far"))
        assert executor.outcome(timeout=5) is None
    said = [text for text in events.messages if "have not started" in text]
    assert len(said) == 1
    assert said[0].startswith("workers have not started for 2 s on far: another program may have taken the room")


def test_a_node_with_another_version_is_refused_by_name(cluster: TwoNodes, driver_toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "torch-1.0.dist-info").mkdir()
    (tmp_path / "torch-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    events, spec = Placed(), make_spec(driver_toy.model, driver_toy.train)
    with cluster.added("odd", n_cpus=4, PYTHONPATH=path), make(cluster, share=Share(cpus=4)) as executor:
        executor.start(Job(spec), events)
        wait_until(lambda: len(events.messages) == 2)
    refused, waits = events.messages
    assert refused.startswith("node odd does no runs: torch 1.0, here ")
    assert waits.startswith("no node is large enough for a run, which takes 4 CPU; "), "it was the only one"
    assert events.at == {}


def test_twin_a_worker_that_opens_a_driver_path_is_noticed(cluster: TwoNodes, driver_toy: Toy) -> None:
    with connected(cluster.address) as ray, pytest.raises(Exception, match="a path of the driver"):
        ray.get(ray.remote(Path.read_bytes).remote(driver_toy.train))
    *_, line = cluster.opened()
    cluster.log.unlink()
    assert line == f"opened {driver_toy.train}"
