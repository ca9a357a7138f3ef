"""The order of modules, and sizes: what STYLE.md asks of the package as a whole."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import frostline

PACKAGE = Path(frostline.__file__).parent

# The reading order: a package imports only packages above it. docs/architecture.md has the same list.
ORDER = (
    "errors", "records", "stats", "kinds", "storage", "tasks", "analysis", "report",
    "model", "strategies", "measures", "training", "saving", "execution", "studies", "serving", "testing", "api",
    "cli", "__main__",
)  # fmt: skip
FIRST_WITH_TORCH = "model"
TOP_LEVEL = {"__init__.py", "__main__.py", "api.py", "errors.py"}
FORBIDDEN = {
    "asked",
    "told",
    "stored",
    "prices",
    "circumstances",
    "settled",
    "utils",
    "common",
    "helpers",
    "misc",
    "manager",
}

MAX_MODULES = 10
MAX_FILE_LINES = 350
MAX_BODY_LINES = 50
MAX_PARAMETERS = 7


def _files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def _module(path: Path) -> str:
    """The package of the order that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, functions' own imports and those for types included."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _misplaced(module: str, imported: str) -> bool:
    """Whether an import of ours points down the order."""
    parts = imported.split(".")
    if parts[0] != "frostline" or len(parts) == 1 or parts[1] not in ORDER:
        return False
    return parts[1] != module and ORDER.index(parts[1]) > ORDER.index(module)


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_what_stands_above(path: Path) -> None:
    assert _module(path) in ORDER, "a new package belongs into the order above and into docs/architecture.md"
    assert [name for name in _imports(path) if _misplaced(_module(path), name)] == []


def test_the_order_test_has_teeth() -> None:
    assert _misplaced("records", "frostline.execution.sweep.Sweep")
    assert not _misplaced("execution", "frostline.records.specs.RunSpec")


def test_no_module_hides_a_public_name() -> None:
    assert not set(frostline.__all__) & set(ORDER), "importing the module would put it in the name's place"


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_above_the_line_imports_torch(path: Path) -> None:
    heavy = {name.partition(".")[0] for name in _imports(path)} & {"torch", "transformers"}
    if ORDER.index(_module(path)) < ORDER.index(FIRST_WITH_TORCH):
        assert not heavy


def test_the_command_line_and_reports_start_without_torch() -> None:
    code = "import sys, frostline.cli, frostline.report.terminal, frostline.storage.runs, frostline.tasks; " \
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE_LINES
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        length = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        assert length <= MAX_BODY_LINES, f"{node.name} is {length} lines long"
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        n_parameters = sum(argument.arg not in ("self", "cls") for argument in arguments)
        is_command = path.parent.name == "cli" and any("command" in ast.unparse(d) for d in node.decorator_list)
        assert is_command or n_parameters <= MAX_PARAMETERS, f"{node.name} takes {n_parameters} parameters"


def _name(path: Path) -> str:
    """`frostline.records.specs`; a package's `__init__` has the package's name."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def _names() -> set[str]:
    return {_name(file) for file in PACKAGE.rglob("*.py")}


def _imports_at_load(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports when it is loaded: not those of functions, and not those for types alone."""
    names = _names()
    for node in _tree(path).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in names else node.module for name in whole if node.module in names)


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    graph = {_name(path): set(_imports_at_load(path)) - {_name(path)} for path in PACKAGE.rglob("*.py")}
    assert sum(map(len, graph.values())) > 500, "the imports were found"
    assert _cycle(graph) == []
    graph["frostline.records.keys"].add("frostline.records.specs")
    assert _cycle(graph), "specs imports keys: this is a cycle"


@pytest.mark.parametrize("folder", [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())])
def test_packages_stay_small_and_no_module_has_an_empty_name(folder: Path) -> None:
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    most = 20 if folder.name == "strategies" else MAX_MODULES  # one per strategy
    assert len(modules) <= most
    assert not {path.removesuffix(".py") for path in modules} & FORBIDDEN
    assert folder != PACKAGE or modules | {"__init__.py"} == TOP_LEVEL
