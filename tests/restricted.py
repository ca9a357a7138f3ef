"""Python processes on a file system that lacks something: its system calls really fail, below Python."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@functools.cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs Linux and a C compiler")
    library = Path(tempfile.mkdtemp(prefix="restricted-")) / "restricted.so"
    source = Path(__file__).with_name("restricted.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def restrictions(below: Path, *lacks: str, **more: str) -> dict[str, str]:
    """Environment variables of a process whose files below a folder are on a file system that lacks these."""
    return {"LD_PRELOAD": str(_library()), "LACKS": " ".join(lacks), "BELOW": str(below), **more}


def start_restricted(code: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """A Python process that runs the code under `restrictions`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_restricted(code: str, *arguments: object, **variables: str) -> str:
    """What such a process prints."""
    with start_restricted(code, *arguments, **variables) as process:
        printed, said = process.communicate()
    assert process.returncode == 0, said
    return printed
