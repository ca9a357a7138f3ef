"""What a run needs of the driver's disk, as trees of files: its model and its data.

A spec names folders and files of the driver. For a node they are replaced by trees (`trees.py`), and the node replaces
the trees by its own folders. The key of the run stays the same, because names are not part of it; the fingerprints of
model and data, which are, are compared again on the node. What comes back gets the driver's names again.

| the spec names | what is sent |
|---|---|
| a model: a folder, the demo's, or on the Hub | what transformers reads of its folder, or of the Hub's cache |
| a file, or a folder of files | the file, or those files in the folder that hold data |
| a GLUE task in a folder | the files of that task |
| the demo's sentences | the file of their package |
| a data set on the Hub | the data set as this machine read it, saved to files |
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from frostline.execution.cluster.trees import Tree, read_tree
from frostline.execution.executor import Outcome
from frostline.records.results import Crash, RunResult
from frostline.records.specs import RunSpec, TaskSpec
from frostline.tasks.formats import hub
from frostline.tasks.named import hub_name, named_files

TREE = "frostline-tree:"
"""how the name of a tree begins in a spec"""
_PLACES = ("source", "data", "dev")
"""fields of a task that name files"""
_OTHER_WEIGHTS = (
    ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot", ".gguf", ".tflite", ".npz", ".zip",
)  # fmt: skip
"""weights for other libraries, or pickled: nothing reads them here"""

Send = Callable[[Iterable[bytes]], list[Any]]
"""Puts pieces where nodes can get them; what it returns stands for them."""


@final
@dataclass(frozen=True)
class Parcel:
    """What a node needs for a run."""

    spec: RunSpec
    """with trees in place of names"""
    trees: tuple[Tree, ...]

    def outcome(self, outcome: Outcome, spec: RunSpec, folder: str) -> Outcome:
        """An outcome of a node, with the driver's names; `folder` is where the node keeps trees."""

        def own(text: str) -> str:
            for ours, theirs in ((spec.model, self.spec.model), *_names(spec.task, self.spec.task)):
                if theirs.startswith(TREE):
                    text = text.replace(at_node(theirs, Path(folder)), ours)
            return text

        if isinstance(outcome, RunResult):
            return outcome.replace(spec=spec, warnings=tuple(map(own, outcome.warnings)))
        if isinstance(outcome, Crash):
            return outcome.replace(spec=spec, error=own(outcome.error), traceback=own(outcome.traceback))
        return outcome.replace(spec=spec)


@final
@dataclass
class Contents:
    """The trees of this machine that runs need, each read and sent once."""

    send: Send
    pieces: dict[str, list[Any]] = field(default_factory=dict)
    """what stands for the bytes of each tree"""
    _models: dict[tuple[str, str | None], Tree] = field(default_factory=dict)
    _tasks: dict[TaskSpec, tuple[TaskSpec, tuple[Tree, ...]]] = field(default_factory=dict)

    def of(self, spec: RunSpec) -> Parcel:
        """What a node needs for a run; reads and sends what was not sent before."""
        named = (spec.model, spec.model_revision)
        if named not in self._models:
            folder = _model_folder(*named)
            self._models[named] = self._sent(folder, _model_files(folder))
        model = self._models[named]
        data = spec.task.replace(max_train=None, max_dev=None)  # these choose among rows, not among files
        if data not in self._tasks:
            self._tasks[data] = self._task(data)
        task, trees = self._tasks[data]
        places = {name: getattr(task, name) for name in _PLACES}
        there = spec.replace(model=f"{TREE}{model.digest}", task=spec.task.replace(**places))
        return Parcel(there, (model, *trees))

    def _task(self, spec: TaskSpec) -> tuple[TaskSpec, tuple[Tree, ...]]:
        """A task with trees in place of names, and the trees."""
        trees, places = [], {}
        for named in named_files(spec):
            trees.append(self._sent(named.folder, named.paths))
            places[named.field] = f"{TREE}{trees[-1].digest}{named.rest}"
        if (found := hub_name(spec)) is not None:
            with tempfile.TemporaryDirectory() as folder:
                hub.save_named(*found[1:], Path(folder))
                below = (path for path in Path(folder).rglob("*") if path.is_file())
                trees.append(self._sent(Path(folder), [path.relative_to(folder).as_posix() for path in below]))
            places[found[0]] = f"{TREE}{trees[-1].digest}"
        return spec.replace(**places), tuple(trees)

    def _sent(self, folder: Path, paths: Iterable[str]) -> Tree:
        tree, pieces = read_tree(folder, paths)
        if tree.digest not in self.pieces:
            self.pieces[tree.digest] = self.send(pieces)
        return tree


def at_node(name: str, folder: Path) -> str:
    """A name from a parcel as a path of this machine; names that are not trees stay as they are."""
    return str(folder / name.removeprefix(TREE)) if name.startswith(TREE) else name


def spec_at_node(spec: RunSpec, folder: Path) -> RunSpec:
    """The spec of a parcel with paths of this machine."""
    task = spec.task
    places = {name: None if (given := getattr(task, name)) is None else at_node(given, folder) for name in _PLACES}
    return spec.replace(model=at_node(spec.model, folder), task=task.replace(**places))


def _names(ours: TaskSpec, theirs: TaskSpec) -> Iterator[tuple[str, str]]:
    for name in _PLACES:
        here, there = getattr(ours, name), getattr(theirs, name)
        if here is not None and there is not None:
            yield here, there


def _model_folder(name: str, revision: str | None) -> Path:
    """The folder with the files of a model; of one from the Hub, that in the Hub's cache."""
    from frostline.model.files.folders import located

    place = Path(located(name)).expanduser()
    if place.is_dir():
        return place
    from huggingface_hub import hf_hub_download
    from transformers.utils import CONFIG_NAME

    return Path(hf_hub_download(name, CONFIG_NAME, revision=revision)).parent


def _model_files(folder: Path) -> list[str]:
    """The files that transformers reads; sentence-transformers reads small files one folder below, too."""
    own = (path for path in folder.glob("[!.]*") if path.suffix.lower() not in _OTHER_WEIGHTS)
    found = (path for path in (*own, *folder.glob("[!.]*/*.json")) if path.is_file())
    return [path.relative_to(folder).as_posix() for path in found]
