"""Paused runs on disk: written whole or not at all, read again to the bit."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import tempfile
from pathlib import Path
from zipfile import BadZipFile

import torch

from frostline.records.results import Leg
from frostline.storage import atomic
from frostline.training.loop import Checkpoint


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Puts a checkpoint at `path` in one step."""
    with atomic.explained(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".pt", delete=False) as file:
            temporary = Path(file.name)
        try:
            torch.save(vars(checkpoint), temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def start_of(leg: Leg) -> Checkpoint | None:
    """Where a part of a run goes on from; None: from the first step."""
    found = _read(Path(leg.checkpoint))
    return None if found is None or (leg.until is not None and found.n_steps > leg.until) else found


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint at `path`; None where there is none, or one that cannot be read: its run begins anew."""
    names = {field.name for field in dataclasses.fields(Checkpoint)}
    with contextlib.suppress(OSError, RuntimeError, EOFError, BadZipFile, pickle.UnpicklingError):
        content = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(content, dict) and content.keys() == names:
            return Checkpoint(**content)
    return None
