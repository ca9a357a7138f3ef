"""The device of a run, and the settings of torch while a run computes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Literal, TypedDict

import torch

from frostline.errors import FrostlineError, UsageError
from frostline.records.requests import Device
from frostline.training.device.products import is_used, quick_products


def pick_device(asked: Device) -> Literal["cpu", "cuda", "mps"]:
    """The device asked for, if it is available; `auto`: the fastest."""
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked == "auto":
        return "cuda" if has["cuda"] else "mps" if has["mps"] else "cpu"
    if not has[asked]:
        available = ", ".join(name for name in has if has[name])
        raise UsageError(f"device {asked!r} is not available; available: {available}")
    return asked


@functools.cache
def device_model(device: str) -> str:
    """The name of the GPU; empty where the processor computes, or holds the GPU."""
    return torch.cuda.get_device_name() if device == "cuda" else ""


class DeviceFacts(TypedDict):
    """What may change the last bits of a run's numbers, by the names that its environment has for them."""

    device_model: str
    """the name of the GPU; empty: none computes"""
    products: str
    """the library that multiplies matrices; empty: torch's own choice"""


def device_facts(device: str) -> DeviceFacts:
    """Those of a run on this device in this process."""
    return {"device_model": device_model(device), "products": "oneDNN" if device == "cpu" and is_used() else ""}


@contextlib.contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """Sets the number of threads, the library for products, and treats denormal numbers as 0; restores all of it.

    Without weight decay, AdamW's first moment becomes denormal for a token that was not seen for 700 steps, and a step
    over a matrix of such numbers takes a CPU fifteen times as long.
    """
    n_threads, was_flushing = torch.get_num_threads(), float(torch.tensor(1e-38) / 4) == 0.0
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if torch.get_num_threads() != threads:  # they are part of what makes a run's numbers
        raise FrostlineError(f"torch uses {torch.get_num_threads()} threads, not {threads}; check OMP_THREAD_LIMIT")
    try:
        with quick_products():
            yield
    finally:
        torch.set_flush_denormal(was_flushing)
        torch.set_num_threads(n_threads)
