"""Making and merging bundles, as Python users call it. Importing this module does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from frostline.errors import check_choice
from frostline.records.specs import BundleDtype

if TYPE_CHECKING:
    from frostline.serving.bundle import Bundle


def bundle(
    folder: str | Path,
    base: str | Path,
    save: str | Path,
    *,
    name: str | None = None,
    dtype: BundleDtype = "fp32",
    dev: str | Path | None = None,
) -> Bundle:
    """Writes what a fine-tuned model adds to its base, whatever tool trained it, as a new folder; returns the bundle.

    Args:
        folder: a fine-tuned transformers folder with safetensors.
        base: the model that it was fine-tuned from: a folder or a Hub name.
        save: the new folder.
        name: the task's name when it is served; by default the folder's.
        dtype: number format: `fp16` and `bf16` take half the space and move the numbers a little.
        dev: a file of labelled rows, with a column `label`, to measure the score and what `dtype` costs.
    """
    check_choice("dtype", dtype, get_args(BundleDtype))
    from frostline.serving.bundles.folders import DevRows, bundle_folder

    rows = None if dev is None else DevRows(file=Path(dev))
    return bundle_folder(Path(folder), str(base), Path(save), name=name, dtype=dtype, dev=rows).bundle


def merge_bundle(folder: str | Path, base: str | Path, save: str | Path) -> Path:
    """Writes a bundle and its base as one ordinary model folder, as `train(save=…)` would have.

    Args:
        folder: the bundle.
        base: the model that it was made for; another one is refused.
        save: the new folder.
    """
    from frostline.serving.bundles import merging

    return merging.merge_bundle(Path(folder), str(base), Path(save))
