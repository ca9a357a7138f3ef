"""Whether a model can be saved in a folder, known before torch is imported and anything is trained."""

from __future__ import annotations

from pathlib import Path

from frostline.errors import UsageError
from frostline.storage import atomic


def check_new_folder(folder: Path, flag: str = "--save") -> None:
    """Raises if saving to this path would overwrite something, or if a folder cannot be made there."""
    with atomic.explained(f"{flag} {folder}"):
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"{flag} {folder} is a broken link; give a new or empty folder")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{flag} {folder} exists already; give a new or empty folder")
        # Try it now: a folder that cannot be made should not be noticed only after training.
        with atomic.private_folder(folder.parent) as private:
            (private / folder.name).mkdir()
