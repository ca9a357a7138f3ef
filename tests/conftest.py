"""What several test files share: a tiny model, a toy task, one curve that nothing disturbed."""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import vl_convert

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

# No deadline: a first call imports and compiles, on a busy machine for longer than hypothesis lets an example take.
hypothesis.settings.register_profile("brief", deadline=None, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None)

SLOWEST = (
    "execution/test_ray.py",
    "strategies/test_strategy_conformance.py", "test_search.py", "torture/test_disturbed.py", "execution/test_local.py",
    "training/test_loop.py", "test_mistakes.py", "test_cli.py", "test_compare.py", "test_docs.py",
    "report/test_page_in_browser.py", "test_api.py", "report/test_comparison_page.py", "serving/test_bundle_runs.py",
    "test_as_plain.py", "model/test_families.py", "studies/test_change_and_scout.py", "test_cli_killed.py",
    "studies/test_axes.py", "saving/test_freezing_loops.py", "test_readme.py", "test_own_data_page.py",
    "training/test_checkpoints.py", "test_stored.py", "serving/test_server_limits.py", "training/test_run.py",
    "model/test_identity.py", "serving/test_server_page.py", "test_until_settled.py", "training/test_prefix.py",
    "training/test_prefix_shared.py", "test_package.py", "strategies/test_lora.py", "test_real.py",
    "studies/test_heads_study.py", "storage/test_cache_disturbed.py", "execution/test_contract.py",
    "serving/test_server_process.py", "execution/test_sharing.py", "test_swapped_models.py",
)  # fmt: skip
"""The slowest files come first (`--no-loadscope-reorder`): at the end, one process would do the last of them alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--thorough` adds the tests that `make test` has no time for."""
    parser.addoption("--thorough", action="store_true", help="also the tests marked so; see `make test-all`")


def pytest_configure(config: pytest.Config) -> None:
    """How many examples hypothesis tries where a test does not say."""
    hypothesis.settings.load_profile("thorough" if config.getoption("--thorough") else "brief")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out thorough tests that nobody asked for; puts the slowest files first, and keeps the order of others."""
    is_named = any("::" in argument for argument in config.args)
    if not (config.getoption("--thorough") or is_named or config.getoption("-m") or config.getoption("-k")):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


def pytest_collection_finish() -> None:
    """Every run collects garbage first; what was imported for good need not be looked through each time."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[Any]:
    """After a file, what it leaves behind for good is not looked through again either."""
    done = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done


def pytest_sessionstart() -> None:
    """A suite that a shell started in the background ignores Ctrl-C, and so would the commands that it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _fork_servers() -> Iterator[None]:
    """Importing torch takes seconds, so the processes that fork workers are forked from one that has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "ForkServer", forked_commands.QuickForkServer)
        yield
    forked_commands.close()


draw = vl_convert.vegalite_to_svg


@functools.lru_cache(maxsize=1000)
def _drawn(spec: str, settings: str) -> str:
    return str(draw(json.loads(spec), **json.loads(settings)))


def _draw_once(spec: Any, **settings: Any) -> str:
    return _drawn(json.dumps(spec), json.dumps(settings))


@pytest.fixture(scope="session", autouse=True)
def _done_once() -> None:
    """Builds the commands once, and draws nothing: every command writes a page with up to a dozen charts."""
    from frostline.cli.app import app

    forked_commands.build_once(app)
    vars(vl_convert)["vegalite_to_svg"] = forked_commands.sketch


_placed: dict[str, Any] = {}


def _place_once(names: Any, scene: Any) -> Any:
    """Where the names of a chart of strategies stand: most of the time that a page of a comparison takes."""
    from frostline.report.charts import labels

    key = repr((names, scene))
    if key not in _placed:
        _placed[key] = labels.place(names, scene)
    return _placed[key]


@pytest.fixture(scope="module")
def draws() -> Iterator[None]:
    """For tests of reports: charts are drawn, the same one once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vl_convert, "vegalite_to_svg", _draw_once)
        patch.setattr("frostline.report.charts.comparison.place", _place_once)
        yield


@pytest.fixture
def draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of drawing: the same chart is drawn each time."""
    monkeypatch.setattr(vl_convert, "vegalite_to_svg", draw)


@pytest.fixture
def own_fork_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of processes: fork servers are started as in real use."""
    monkeypatch.setattr(local, "ForkServer", ForkServer)


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
