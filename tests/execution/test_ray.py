"""Runs on a real Ray cluster of two nodes on this machine; see `clusters.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters import TwoNodes, two_nodes
from frostline.execution.cluster.executor import DEATHS, RayCluster
from frostline.execution.cluster.nodes import Share
from frostline.execution.cluster.places import Hiring
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.testing.executors import check_executor


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with two_nodes(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def make(cluster: TwoNodes, most: int | None = None) -> RayCluster:
    hiring = Hiring(share=Share(), most=most, threads=1, max_cache_bytes=2**30)
    return RayCluster(hiring, address=cluster.address)


def test_a_cluster_keeps_the_contract_and_no_driver_path_is_opened(
    cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, start = cluster.driver_root / "contract", RayCluster.start
    away = {folder / name: folder / f"renamed {name}" for name in ("model", "task.csv")}

    def make_again(n_places: int) -> RayCluster:
        for path, renamed in away.items():
            if renamed.exists():
                renamed.rename(path)
        return make(cluster, n_places)

    def start_and_rename(executor: RayCluster, job: Job, listener: Listener) -> None:
        start(executor, job, listener)
        for path, renamed in away.items():
            if path.exists():
                path.rename(renamed)

    monkeypatch.setattr(RayCluster, "start", start_and_rename)
    check_executor(make_again, folder, cluster.worker_pids, deaths=DEATHS)
    assert cluster.opened() == []
