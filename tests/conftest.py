"""What several test files share: a tiny model, a toy task, one curve that nothing disturbed."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

# One thread everywhere: two threads in each of two processes are slower than one. Before torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"
# No test asks the network. Before the libraries that read it are imported: they would try for half a minute.
os.environ["HF_HUB_OFFLINE"] = "1"
# Models that a test puts into the Hub's cache are there for this session alone, and the user's own are not seen.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="frostline-hub-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
# Prefix states are kept for this session alone.
os.environ["FROSTLINE_CACHE"] = tempfile.mkdtemp(prefix="frostline-cache-")
atexit.register(shutil.rmtree, os.environ["FROSTLINE_CACHE"], ignore_errors=True)

import forked_commands  # noqa: E402
from commands import Finished, Toy, announced_rng, frostline  # noqa: E402
from frostline.execution import local  # noqa: E402
from frostline.execution.fork_server import ForkServer  # noqa: E402


def pytest_collection_finish() -> None:
    """Every run collects garbage first; what was imported for good need not be looked through each time."""
    import hypothesis  # noqa: F401 - when imported, it looks for who refers to what, which freezing hides

    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _fork_servers() -> Iterator[None]:
    """Importing torch takes seconds, so the processes that fork workers are forked from one that has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "ForkServer", forked_commands.QuickForkServer)
        yield
    forked_commands.close()


@pytest.fixture(scope="module")
def own_fork_servers() -> Iterator[None]:
    """For tests of processes: fork servers are started as in real use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "ForkServer", ForkServer)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """Random moments."""
    return announced_rng()


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A BERT of 3 layers and two CSV files."""
    from frostline.testing.models import make_model, make_task

    folder = tmp_path_factory.mktemp("toy")
    return Toy(
        model=make_model(folder / "tiny-bert", n_layers=3, initializer_range=0.25),
        train=make_task(folder / "reviews.csv", n_rows=72),
        dev=make_task(folder / "dev.csv", n_rows=24, seed=1),
    )


@pytest.fixture(scope="session")
def undisturbed(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The shared curve, done by two workers in one go. Its out folder is only to be read: work in `out_copy`."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    return frostline(*toy.curve, "--workers", "2", "--json", out=out)


@pytest.fixture
def out_copy(undisturbed: Finished, tmp_path: Path) -> Path:
    """A copy of the out folder of the shared curve."""
    return Path(shutil.copytree(undisturbed.out, tmp_path / "out"))
