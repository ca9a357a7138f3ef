"""The package as people get it: built, installed somewhere else, run from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True, capture_output=True)
    return folder


def test_every_module_and_nothing_else_is_in_it(wheel: Path) -> None:
    source = ROOT / "src"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {str(path.relative_to(source)) for path in files}
    names = set(zipfile.ZipFile(wheel).namelist())
    found = {name for name in names if ".dist-info/" not in name}
    assert "frostline/py.typed" in found
    assert "frostline/execution/worker.py" in found
    assert found == wanted
    assert not [name for name in names if "test_" in name or "shared" in name or name.endswith((".csv", ".tsv"))]


def test_the_licence_goes_with_it(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = [name for name in archive.namelist() if name.endswith("LICENSE")]
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (metadata,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    said = archive.read(metadata).decode()
    assert "Name: frostline" in said
    assert "Provides-Extra: demo" in said


def test_the_installed_package_works_from_its_own_place(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "HF_HUB_OFFLINE": "1"}

    def said(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    place = said("-c", "import frostline; print(frostline.__file__)").strip()
    assert place == str(installed / "frostline" / "__init__.py"), "not the built package is tested"
    assert json.loads(said("-m", "frostline", "layers", "roberta-base", "--json"))["total"] == 124_645_632
