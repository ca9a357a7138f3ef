"""What a user asked for, and the same with every default filled in.

Plain data. `studies/requests` reads it from flags and fills it in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frostline.records.depth import AxisName, Rank
from frostline.records.serial import Record, added_later, if_set, json_name
from frostline.records.specs import CacheDtype, Protocol, RunSpec, Scale, TaskSpec

Rerun = Literal["only-missing", "always", "never"]
"""which runs to do again"""
Place = Literal["local", "ray"]
"""where runs happen"""
Device = Literal["auto", "cpu", "cuda", "mps"]
"""where a run trains, as users ask for it"""


@dataclass(frozen=True, kw_only=True)
class StudyRequest(Record):
    """What every study is asked: a model, data, depths and how to train. Fields left None are filled in later."""

    model: str
    """a Hub name, a folder, or all-MiniLM-L6-v2 from the `demo` extra"""
    task: TaskSpec
    """the data"""
    frozen: tuple[int, ...] | None = None
    """numbers of frozen layers to try, for example `0,6-12`"""
    keep: tuple[float, ...] = (0.9,)
    """shares of the full score to find the operating point for"""
    scale: Scale = "ratio"
    """scale of the operating point that is shown first"""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """number of replicates (`5`), or a list of seeds (`0,1,7`)"""
    learning_rates: tuple[float, ...] = (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)
    """learning rates to search, separated by commas"""
    epochs: int | None = None
    """passes over the training rows"""
    batch_size: int = 16
    """rows per step"""
    micro_batch_size: int | None = if_set(None)
    """rows of a step that are computed together, if all of them do not fit into memory; gradients add up"""
    max_length: int = 128
    """longest row in tokens; longer texts are cut"""
    protocol: Protocol = "paper"
    """`paper`: one learning rate for all, the full model's best on dev; `tuned`: a learning rate for each depth or
    strategy, chosen on rows held out of train"""
    line_search: Literal["whole", "race"] = if_set("whole")
    """how `paper` searches its learning rate: `whole`, one whole run for each; `race`, the worse ones stop early"""
    frozen_dropout: bool = False
    """leave dropout on in frozen layers, as plain `requires_grad=False` does; nothing is cached then"""
    cache: bool = True
    """compute the outputs of frozen layers once and cache them"""
    cache_dtype: CacheDtype = "fp32"
    """number format of cached states: fp16 and bf16 take half the space and move scores a little"""
    varlen: bool = False
    """on CUDA, pack rows without padding and use variable-length attention; untested, no GPU has run it yet"""
    threads: int = 1
    """threads per run; another number gives slightly different results"""
    device: Device = "auto"
    """where to train"""
    master_seed: int = added_later(0)
    """repeats the whole protocol with other random numbers: rate searches, held-out rows and replicates, not the
    sample of rows"""
    max_steps: int | None = added_later(None)
    """train exactly this many steps; None: whole epochs"""
    subset_of: int | None = added_later(None)
    """of a curve at one of several training sizes: the largest size; each seed draws its own rows"""
    is_balanced: bool = if_set(False)
    """of a comparison on few examples: each seed draws equally many rows of each class"""
    passes: int = if_set(1)
    """passes over the training rows between two scores on dev: together they are one epoch"""
    until_settled: bool = added_later(False)
    """add seeds to depths whose verdict is open, as long as they can decide it; failed runs are replaced"""
    max_seeds: int = added_later(20)
    """with `until_settled`: maximum number of seeds per depth, replacements not counted"""
    confidence: float = added_later(0.95)
    """how sure verdicts and answers must be"""
    warmup_share: float = added_later(0.1)
    """share of the steps over which the learning rate rises; after that it falls linearly to 0"""
    weight_decay: float = added_later(0.0)
    """weight decay of the trained parameters"""
    clip_norm: float = added_later(1.0)
    """maximum gradient norm; larger gradients are scaled down to it"""
    precision: Literal["auto", "fp32", "bf16"] = added_later("auto")
    """bf16 uses autocast on CUDA, weights stay fp32; auto is fp32, except bf16 for `tuned` on CUDA"""
    axis: AxisName = if_set("depth")
    """what varies: `depth`, layers frozen; `transfer`, pretrained layers kept; `reinit`, top layers re-initialised;
    `heads`, attention heads trained; `subspace`, numbers trained in a random subspace. `find` searches along depth,
    heads and subspace"""
    axis_values: tuple[int, ...] | None = if_set(None)
    """values on another axis than depth, for example `6,12,24,48`"""
    rank: Rank = if_set("importance")
    """with `--axis heads`: what decides which attention heads are trained"""


@dataclass(frozen=True, kw_only=True)
class ResolvedAxis(Record):
    """The places of an axis other than depth, each place cheaper, or further from the full model, than the last."""

    name: AxisName
    """what varies"""
    values: tuple[int, ...]
    """its value at each place"""
    strategies: tuple[str, ...]
    """what is trained at each place; ranked attention heads by their names"""
    trained_layers: tuple[int, ...]
    """how many layers train at each place"""
    total: int | None = None
    """how many there are of what the values count: layers or attention heads; None: no number"""


@dataclass(frozen=True, kw_only=True)
class ResolvedRequest(Record):
    """A request with every default filled in. The first call writes it, later calls read it."""

    request: StudyRequest = json_name("asked")
    """what the user asked for"""
    base: RunSpec
    """the full model's run with the first rate and seed; other runs change strategy, rate, seed, role and caching"""
    n_layers: int
    """layers of the model"""
    depths: tuple[int, ...]
    """depths to train at, ascending; none on another axis"""
    is_cached: bool
    """whether prefix states are cached"""
    has_races: bool = added_later(False)
    """rates under `tuned` are chosen by a race; release 0.1 tried each rate once"""
    n_steps: int | None = if_set(None)
    """of a line search that is a race: the steps of a whole run"""
    budget: float | None = added_later(None)
    """of a search: its maximum cost, in full-run equivalents"""
    start: int | None = if_set(None)
    """of a search that asked `scout` where to start: the depth that it named"""
    axis: ResolvedAxis | None = if_set(None)
    """what varies; None: depth"""


@dataclass(frozen=True, kw_only=True)
class ResolvedComparison(Record):
    """A request for a comparison with every default filled in."""

    strategies: tuple[str, ...]
    """what is compared, as the user wrote it"""
    resolved: ResolvedRequest = json_name("settled")
    """everything else"""
    named: tuple[str, ...] = if_set(())
    """the same strategies with ranked attention heads by their names; empty: none is ranked"""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How runs are done. None of it changes a number."""

    out: Path
    """output folder"""
    n_workers: int | None = None
    """runs at the same time"""
    rerun: Rerun = "only-missing"
    """which runs to do again"""
    max_cache_bytes: int = 8 * 2**30
    """maximum disk space for cached prefix states"""
    same_environment: bool = False
    """refuse stored runs made with other versions of the libraries, or on another processor or GPU"""
    probe: bool = False
    """also fit a linear model to the output of each layer"""
    on: Place = "local"
    """where runs happen: on this machine, or on a Ray cluster"""
    ray_address: str | None = None
    """address of the Ray cluster, as host:port"""
    cpus_per_run: float | None = None
    """CPUs that a run takes on a Ray cluster"""
    gpus_per_run: float | None = None
    """GPUs that a run takes on a Ray cluster; several runs can share one, for example with 0.5"""
    memory_per_run: int | None = None
    """memory that a run takes on a Ray cluster, in bytes"""
    no_wait: bool = False
    """stop where a Ray cluster has no room, instead of waiting for it"""
    trackers: tuple[str, ...] = ()
    """experiment trackers that log each run: tensorboard, mlflow, wandb; separated by commas"""
