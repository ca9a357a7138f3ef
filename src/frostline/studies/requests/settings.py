"""Every setting of every command, declared once: its type, its help and its default.

The command line makes flags of these classes, config files are read by them, and Python users get them as typed
keyword arguments (`Unpack[CurveSettings]`). The help text is the string under the record's field that a setting fills;
`Flag` says what differs on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, final

from frostline.records.depth import AxisName, Rank
from frostline.records.requests import Device, Place
from frostline.records.specs import BundleDtype, CacheDtype, Protocol, Scale


@final
@dataclass(frozen=True, kw_only=True)
class Flag:
    """How a setting looks outside Python, where its name, type and record's field do not say it."""

    help: str | None = None
    """by default the string under the record's field"""
    field: str | None = None
    """the record's field that it fills, where that has another name"""
    default: str | None = None
    """what is shown as the default; by default the record's"""
    type: Any = None
    """on the command line; by default Python's"""
    items: Any = None
    """the type of each item, where it takes one value or a list"""
    is_negated: bool = False
    """the flag is `--no-…` and switches it off"""
    is_python_only: bool = False


class DataSettings(TypedDict, total=False):
    """Which rows, and what is learned from them."""

    data: str | None
    dev: Annotated[str | None, Flag(default="the data's own, else cut from train")]
    dev_share: float
    text: Annotated[str | None, Flag(default="the task's, else found by name")]
    text_pair: str | None
    label: Annotated[str | None, Flag(default="the task's, else found by name")]
    kind: Annotated[str | None, Flag(default="the task's, else found from the labels")]
    metric: Annotated[str | None, Flag(default="the task's")]
    max_train: Annotated[int | None, Flag(default="all")]
    max_dev: Annotated[int | None, Flag(default="all")]
    name: Annotated[str, Flag(help="what rows that Python holds are called", is_python_only=True)]
    tokenizer: Annotated[Any, Flag(help="of a model object, where its name does not lead to it", is_python_only=True)]


class DepthSettings(TypedDict, total=False):
    """Depths of a curve or a search."""

    frozen: Annotated[str | int | Sequence[int], Flag(default="half of the layers to all of them", type=str, items=int)]
    scale: Scale
    confidence: float


class AxisSettings(TypedDict, total=False):
    """What a curve or a search varies, if not the depth."""

    axis: AxisName
    axis_values: Annotated[str | int | Sequence[int], Flag(default="a few over the whole axis", type=str, items=int)]
    rank: Rank


class SeedSettings(TypedDict, total=False):
    """Replicates, and a learning rate that is given."""

    seeds: Annotated[str | int | Sequence[int], Flag(default="5", type=str, items=int)]
    lr: Annotated[float, Flag(help="one learning rate, without a search", default="searched")]


class OptimizerSettings(TypedDict, total=False):
    """How a run trains."""

    lrs: Annotated[
        str | Sequence[float],
        Flag(
            field="learning_rates",
            default="paper: 1e-5,2e-5,3e-5,4e-5,5e-5; tuned: 2e-5,5e-5,1e-4,2e-4, extended as needed",
            type=str,
            items=float,
        ),
    ]
    epochs: Annotated[int, Flag(default="3, RoBERTa 10")]
    batch_size: int
    micro_batch_size: Annotated[int, Flag(default="the whole batch")]
    warmup_share: float
    weight_decay: float
    clip_norm: float
    precision: Literal["auto", "fp32", "bf16"]
    frozen_dropout: bool


class ReadingSettings(TypedDict, total=False):
    """How long rows are, and which random numbers are drawn; commands that train nothing have these too."""

    max_length: int
    master_seed: int


class MachineSettings(TypedDict, total=False):
    """Where and how fast. Only `cache_dtype`, `varlen`, `threads` and `device` can change a number."""

    cache: Annotated[bool, Flag(help="compute the frozen layers in every step; nothing is cached", is_negated=True)]
    cache_dtype: CacheDtype
    cache_max_gb: Annotated[float, Flag(help="maximum disk space for cached prefix states, in GB", default="8")]
    varlen: bool
    threads: int
    workers: Annotated[int, Flag(field="n_workers", default="one per core; on Ray, all there is room for")]
    device: Device
    same_environment: bool
    on: Place
    ray_address: Annotated[str | None, Flag(default="$RAY_ADDRESS, else a cluster started on this machine")]
    cpus_per_run: Annotated[float, Flag(default="its threads")]
    gpus_per_run: Annotated[float, Flag(default="1 with CUDA")]
    memory_per_run: Annotated[
        float, Flag(help="memory that a run takes on a Ray cluster, in GB", default="not limited")
    ]
    no_wait: bool


class OutputSettings(TypedDict, total=False):
    """Where results go."""

    out: Annotated[str | Path, Flag(default="runs/<model>-<task>", type=str)]


class SweepSettings(TypedDict, total=False):
    """What a command with many runs does with them."""

    rerun: Literal["only-missing", "always", "never"]
    track: Annotated[str | Sequence[str], Flag(field="trackers", default="none", type=str)]


class KeepSettings(TypedDict, total=False):
    """What a curve is asked for."""

    keep: Annotated[
        float | Sequence[float],
        Flag(
            help="share of the full score to find the operating point for; repeat the flag for several",
            default="0.9",
            type=list[float],
            items=float,
        ),
    ]
    protocol: Protocol
    line_search: Literal["whole", "race"]
    until_settled: bool
    max_seeds: Annotated[int, Flag(help="with --until-settled: maximum number of seeds per depth")]
    probe: bool


class TrainSizeSettings(TypedDict, total=False):
    """Several curves, each on another number of training rows."""

    train_sizes: Annotated[
        str | Sequence[int],
        Flag(
            help="make a curve for each of these numbers of training rows, for example 50,100,200",
            default="one curve on all rows",
            type=str,
            items=int,
        ),
    ]
    equal: Annotated[
        Literal["epochs", "steps"],
        Flag(help="with --train-sizes: what stays the same at every size", default="steps"),
    ]


class RatesSettings(TypedDict, total=False):
    """Several curves, each at another learning rate."""

    rates_at_depths: Annotated[
        bool, Flag(help="make a curve at each of the learning rates (--lrs): rates against depth", default="off")
    ]


class GoalSettings(TypedDict, total=False):
    """When a search ends, and where its model is saved."""

    keep: Annotated[float, Flag(help="share of the full score to keep", default="0.9")]
    budget: Annotated[
        str | float | None,
        Flag(
            help="maximum cost: in full-run equivalents, or a time such as 30min",
            default="what the whole curve costs",
            type=str,
        ),
    ]
    protocol: Annotated[Protocol, Flag(default="tuned")]
    save: Annotated[str | Path | None, Flag(help="new folder for the model that was found", default="none", type=Path)]
    start: Annotated[
        Literal["deepest", "scout"],
        Flag(help="which depth to try first; scout predicts it, and only the order changes", default="deepest"),
    ]


class StrategySettings(TypedDict, total=False):
    """What a comparison compares."""

    strategies: Annotated[
        str | Sequence[str],
        Flag(
            help="what to compare, separated by commas: full, freeze:N, freeze:+N, layers:1-2+11, attention@N, ffn@N, "
            "heads:K@RANK, reinit:K, transfer:K, lora:R, lora:R@N, adapter:D, adapter:D@N, bitfit, norms, subspace:D, "
            "features, features:logreg@LAYER.POOLING, features:bilstm, gradual, setfit",
            type=str,
            items=str,
        ),
    ]
    protocol: Annotated[Protocol, Flag(default="tuned; paper with --per-class")]


class PerClassSettings(TypedDict, total=False):
    """Several comparisons, each on another number of training rows per class."""

    per_class: Annotated[
        str | Sequence[int],
        Flag(
            help="compare with each of these numbers of training rows per class, for example 8,16,64; each seed draws "
            "its own rows",
            default="all rows",
            type=str,
            items=int,
        ),
    ]
    steps: Annotated[
        int,
        Flag(
            help="with --per-class: training steps at every number of rows",
            default="200, or the epochs of the largest if they take more",
        ),
    ]


class ModelSettings(TypedDict, total=False):
    """Which one model to train, and where to save it."""

    frozen: Annotated[
        int | str | None, Flag(help="how many layers to freeze, or `full`", default="", type=str, items=int)
    ]
    strategy: Annotated[str | None, Flag(help="any strategy instead of --frozen, for example `lora:8`", default="")]
    save: Annotated[str | Path | None, Flag(help="new folder for the model", default="none", type=Path)]
    seeds: Annotated[
        str | int | Sequence[int], Flag(help="the seed, with a comma after it: `3,`", default="0,", type=str, items=int)
    ]
    lr: Annotated[
        float, Flag(help="learning rate", default="searched: as in paper with --frozen, as in tuned with --strategy")
    ]


class BundleSettings(TypedDict, total=False):
    """Handing over only what the task adds to the model."""

    bundle: Annotated[
        str | Path | None,
        Flag(help="new folder for a bundle: only what the task adds to the model", default="none", type=Path),
    ]
    bundle_dtype: Annotated[
        BundleDtype, Flag(help="number format of the bundle; fp16 and bf16 take half the space", default="fp32")
    ]


class PruningSettings(TypedDict, total=False):
    """What is asked about attention heads."""

    rows: Annotated[int, Flag(help="maximum number of training rows that importance is computed on", default="1000")]
    keep: Annotated[float, Flag(help="share of the unpruned score to keep", default="0.9")]
    prune: Annotated[bool, Flag(help="measure importance only", is_negated=True)]
    tuned: Annotated[
        str | Path | None,
        Flag(help="measure this fine-tuned folder, with its own head, instead of MODEL", default="none", type=Path),
    ]


class StudySettings(
    SeedSettings, OptimizerSettings, ReadingSettings, MachineSettings, OutputSettings, SweepSettings, total=False
):
    """What all commands with many runs have in common."""


class CurveSettings(DataSettings, DepthSettings, AxisSettings, KeepSettings, StudySettings, total=False):
    """Settings of `frostline.curve`."""


class SizesSettings(CurveSettings, TrainSizeSettings, RatesSettings, total=False):
    """Settings of `frostline.sizes`, and of the command `curve`, which takes both."""


class FindSettings(DataSettings, DepthSettings, AxisSettings, GoalSettings, BundleSettings, StudySettings, total=False):
    """Settings of `frostline.find`."""


class CompareSettings(DataSettings, StrategySettings, StudySettings, total=False):
    """Settings of `frostline.compare`."""


class FewSettings(CompareSettings, PerClassSettings, total=False):
    """Settings of `frostline.few`, and of the command `compare`, which takes both."""


class TrainSettings(
    DataSettings,
    ModelSettings,
    BundleSettings,
    OptimizerSettings,
    ReadingSettings,
    MachineSettings,
    OutputSettings,
    total=False,
):
    """Settings of `frostline.train`."""


PANELS: Mapping[str, tuple[Any, ...]] = {
    "Data": (DataSettings,),
    "What to train": (
        DepthSettings,
        AxisSettings,
        KeepSettings,
        TrainSizeSettings,
        RatesSettings,
        GoalSettings,
        StrategySettings,
        PerClassSettings,
        ModelSettings,
        PruningSettings,
    ),
    "Training": (SeedSettings, OptimizerSettings, ReadingSettings),
    "Machine": (MachineSettings,),
    "Output": (OutputSettings, SweepSettings, BundleSettings),
}
"""the classes whose settings the command line's help shows together"""
ELSEWHERE = {"seeds": "Training", "lr": "Training", "save": "Output"}
"""settings that a command declares with others, and that belong into another panel"""
