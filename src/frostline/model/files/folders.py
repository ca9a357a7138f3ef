"""A model folder is checked before any library opens it, without torch and transformers."""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from frostline.errors import DataError, UsageError, suggestion
from frostline.records.serial import read_json
from frostline.tasks import demo_model_folder

DEMO_MODEL = "all-MiniLM-L6-v2"
"""The model that comes with the `demo` extra."""
FREQUENT_MODELS = ("bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large", DEMO_MODEL)
"""Names to suggest for a mistyped one: the models of the paper and of the demo."""

_NEAR_FAMILY = 0.8
"""Least similarity of `rberta` to `roberta` for it to be a typo."""

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_INDEXES = tuple(f"{name}.index.json" for name in _WEIGHTS)

LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""Names under which configurations count their layers."""
_MOST_LAYERS = 10_000
"""More than any model has."""

NO_CODE = "frostline never runs code that comes with a model; give one whose architecture is part of transformers"
"""Why a model that needs its own code is refused."""

_TYPE = re.compile(r'"([\w.-]+)"\s*[:,]\s*"(?!AutoConfig)\w+Config"')
"""A model type and its class, as the library's tables have them."""


def check_model_files(name: str, *, needs_weights: bool = True) -> None:
    """Raises if a model is not a folder that has a configuration and weights, or a name that may be on the Hub."""
    try:
        is_file, is_folder = Path(name).is_file(), Path(name).is_dir()
    except OSError:  # a name that is too long, or a folder without permission: the library says why
        return
    if is_file:
        raise UsageError(f"no usable model {name!r}: it is a file; give the folder that holds the model")
    if is_folder:
        check_folder(Path(name))
        if needs_weights:
            check_weight_files(Path(name))
    elif is_path(name):
        raise UsageError(f"no usable model {name!r}: there is no such folder.{suggestion(name, alike(name))}")


def located(name: str) -> str:
    """Where a model is loaded from: the demo model comes from its package, every other from its name or path."""
    is_demo = name == DEMO_MODEL and not Path(name).is_dir()
    return str(demo_model_folder()) if is_demo else name


def check_saved(folder: Path) -> None:
    """Raises if there is no folder of a saved model."""
    if not folder.is_dir():
        raise UsageError(f"there is no model folder {folder}; `train` and `find` make one with --save {folder}")


def is_path(name: str) -> bool:
    """Whether a name can only be a path: no model on the Hub is called so."""
    return name.startswith(("/", ".", "~")) or name.endswith("/") or name.count("/") > 1


def counted_layers(name: str) -> int | None:
    """How many layers a model's configuration counts; None if it does not say, or the model is on the Hub."""
    path = Path(located(name)) / "config.json"
    counted = _read_json(path).get("num_hidden_layers") if path.is_file() else None
    return counted if isinstance(counted, int) else None


def model_types() -> Collection[str]:
    """The model types that transformers knows, with those that were registered if it is imported.

    If it is not, they are read from the text of its files: importing it takes seconds.
    """
    if "transformers" in sys.modules:
        from transformers import CONFIG_MAPPING

        return list(CONFIG_MAPPING.keys())
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "models" / "auto"
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("auto_mappings.py", "configuration_auto.py")]
    return {kind for text in texts for kind in _TYPE.findall(text)}


def alike(name: str) -> list[str]:
    """Frequent models of the same family as a name that was not found."""
    return [known for known in FREQUENT_MODELS if _is_same_family(name, known)]


def check_folder(folder: Path) -> None:
    """Raises if a folder has no configuration of a known kind of model, and says what the folder holds instead."""
    path = folder / "config.json"
    if not path.is_file():
        raise DataError(_instead_of_a_model(folder), path=folder)
    config = _read_json(path)
    _check_layer_count(path, config)
    kind, code, known = config.get("model_type"), config.get("auto_map"), model_types()
    if kind in known:
        return
    if code:
        raise UsageError(f"{path}: the model needs its own code (auto_map); {NO_CODE}")
    if kind is None:
        raise DataError("no model_type; save the model with transformers: model.save_pretrained(DIR)", path=path)
    raise DataError(f"unknown model_type {kind!r}.{suggestion(str(kind), known)}", path=path)


def _check_layer_count(path: Path, config: dict[str, Any]) -> None:
    """Raises if the configuration counts absurdly many layers: the library would build them one by one, for hours."""
    for name in LAYER_COUNTS:
        counted = config.get(name)
        if isinstance(counted, int) and counted > _MOST_LAYERS:
            raise DataError(f"{name} is {counted!s:.30}; it can be at most {_MOST_LAYERS:,}", path=path)


def check_weight_files(folder: Path) -> None:
    """Raises if weights are missing or incomplete in a folder."""
    if not any((folder / name).is_file() for name in (*_WEIGHTS, *_INDEXES)):
        others = sorted(path.name for path in folder.iterdir() if path.suffix in (".h5", ".msgpack", ".gguf", ".onnx"))
        only = f"; {', '.join(others)} is not for torch" if others else ""
        raise DataError(f"no weights (one of {', '.join((*_WEIGHTS, *_INDEXES))}){only}", path=folder)
    for index in (folder / name for name in _INDEXES):
        if index.is_file() and not (folder / index.name.removesuffix(".index.json")).is_file():
            _check_shards(index)
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(file, framework="np"):
                pass
        except SafetensorError as error:
            raise DataError(f"truncated, or not a safetensors file ({error}); download it again", path=file) from error


def _instead_of_a_model(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        base = _read_json(folder / "adapter_config.json").get("base_model_name_or_path")
        return f"a PEFT adapter of {base}, not a model; merge the two (merge_and_unload) and save the result"
    inside = sorted(path.parent.name for path in folder.glob("*/config.json") if "model_type" in _read_json(path))
    if inside:
        return f"no config.json; there is a model in {', '.join(inside)} inside it: give that folder"
    return "no config.json: not a transformers model folder; model.save_pretrained(DIR) makes one"


def _check_shards(index: Path) -> None:
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, dict):
        raise DataError("no weight_map; download it again", path=index)
    absent = sorted({str(shard) for shard in shards.values() if not (index.parent / str(shard)).is_file()})
    if absent:
        raise DataError(f"it names {', '.join(absent)}, which is not there; download it too", path=index)


def _read_json(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError("it must hold a JSON object", path=path)
    return value


def _is_same_family(name: str, known: str) -> bool:
    """Whether the first parts of two model names (`bert` in `google-bert/bert-base-uncased`) are the same or a typo.

    `xlnet-base-cased` has most letters of `bert-base-uncased`, but a user who writes it does not mean BERT.
    """
    given, wanted = (re.split(r"[-_]", each.rpartition("/")[2].lower())[0] for each in (name, known))
    if given in model_types():  # the name of a family, so not a typo: ALBERT is not BERT
        return given == wanted
    return difflib.SequenceMatcher(None, given, wanted).ratio() >= _NEAR_FAMILY
