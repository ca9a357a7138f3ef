"""Samples of the speed bench → medians, ratios, and whether each bar is met; no measuring, no printing."""

from __future__ import annotations

import statistics
from typing import Any

from bench.machine import Product, operations
from bench.workload import DEPTHS, FULL, KINDS, N_LAYERS, Asked, Workload

Samples = dict[str, Any]
Found = dict[str, Any]
Answer = dict[str, float]

CURVE_BARS = {"whole": {"trainer": 5.0, "padded": 18.0}, "race": {"trainer": 5.5}, "small": {"trainer": 2.5}}
STEP_BARS = {FULL: 2.0, "freeze:3": 4.0, "freeze:5": 20.0, "freeze:6": 100.0}
SHARE_BARS = {f"freeze:{DEPTHS[0]}": 0.5}

_OTHERS = {"trainer": "Trainer", "padded": "Trainer padded to 128"}


def compare(asked: Asked, samples: Samples) -> Found:
    """Everything that follows from the samples, ratios first; parts that are not measured yet are absent."""
    found: Found = {"ratios": {}, "seconds": {}, **_steps(samples)}
    sizes = asked.sizes
    for name, work in (("whole", sizes.whole), ("race", sizes.whole), ("small", sizes.small)):
        if commands := samples.get(name):
            ours = statistics.median(command["seconds"] for command in commands)
            others = {way: _extrapolated(work, found, way) for way in found["step_seconds"]["others"]}
            found["seconds"][name] = {**others, "frostline": ours}
            found["ratios"][name] = {way: seconds / ours for way, seconds in others.items()}
            found.setdefault("cache", {})[name] = _cache(commands[0])
    effective = found["step_seconds"]["frostline"]
    trainer = found["step_seconds"]["others"]["trainer"]
    found["ratios"]["step"] = {kind: trainer[kind] / effective[kind] for kind in KINDS}
    found |= {name: samples[name] for name in ("memory", "scores") if name in samples}
    if "growth" in samples:
        found["growth"] = {"trained_layers": _by_trained(found), **samples["growth"], "workers": _workers(samples)}
    bars = _bars(found)
    return {"ratios": found.pop("ratios"), "bars": bars, **found}


def effective_seconds(answers: list[Answer]) -> float:
    """Seconds a step of all processes together: one over the sum of their rates."""
    return 1 / sum(answer["times"] / answer["seconds"] for answer in answers)


def product_name(product: Product) -> str:
    """How a shape is called in the JSON."""
    return "×".join(map(str, product))


def _steps(samples: Samples) -> Found:
    others = {
        way: {kind: statistics.median(values) for kind, values in kinds.items()}
        for way, kinds in samples["steps"].items()
    }
    paces = samples["paces"]
    ours = {kind: statistics.median(map(effective_seconds, repeated)) for kind, repeated in paces.items()}
    rates = [_rate(products) for products in samples["products"]]
    return {
        "step_seconds": {"others": others, "frostline": ours},
        "dev_seconds": {way: statistics.median(values) for way, values in samples["dev"].items()},
        "machine": {
            "operations_per_second": statistics.median(rates),
            "share_reached": {kind: _share(repeated, rates) for kind, repeated in paces.items()},
            "operations_per_step": {kind: _mean_of(repeated, "operations") for kind, repeated in paces.items()},
            "tokens_per_step": _mean_of(paces[FULL], "tokens"),
        },
    }


def _rate(products: dict[str, list[Answer]]) -> float:
    """Operations a second of one thread while all cores multiply: that of the best shape."""
    return max(
        operations(_product(name)) / statistics.median(answer["median_seconds"] for answer in answers)
        for name, answers in products.items()
    )


def _product(name: str) -> Product:
    rows, inner, columns = map(int, name.split("×"))
    return rows, inner, columns


def _share(repeated: list[list[Answer]], rates: list[float]) -> float:
    """Useful operations a second of one process, over what it could multiply in the same repetition."""
    return statistics.median(
        answer["operations"] * answer["times"] / answer["seconds"] / rate
        for answers, rate in zip(repeated, rates, strict=True)
        for answer in answers
    )


def _mean_of(repeated: list[list[Answer]], name: str) -> float:
    return statistics.fmean(answer[name] for answers in repeated for answer in answers)


def _extrapolated(work: Workload, found: Found, way: str) -> float:
    """All runs of a curve one by one in another way, each scored once at its end; imports and loading left out."""
    steps, dev = found["step_seconds"]["others"][way], found["dev_seconds"][way]
    return float(sum(work.n_runs(kind) * (work.n_steps * steps[kind] + dev) for kind in KINDS))


def _cache(command: dict[str, Any]) -> dict[str, Any]:
    return {"largest_of_a_run": command["cost"]["cache_bytes"], "kept_by_depth": command["cache_bytes_by_depth"]}


def _by_trained(found: Found) -> dict[str, float]:
    """Effective seconds of a step, by trained layers, fewest first; the full model trains the embeddings too."""
    ours = found["step_seconds"]["frostline"]
    depths = {str(N_LAYERS - depth): ours[f"freeze:{depth}"] for depth in reversed(DEPTHS)}
    return {**depths, f"{N_LAYERS} and embeddings": ours[FULL]}


def _workers(samples: Samples) -> dict[str, float]:
    all_cores = statistics.median(command["seconds"] for command in samples["small"])
    return {"1": samples["one_worker"]["seconds"], str(samples["n_cores"]): all_cores}


def _bars(found: Found) -> list[dict[str, Any]]:
    """Each number that must be shown, with its bar."""
    ratios, shares = found["ratios"], found["machine"]["share_reached"]
    curves = [
        _bar(f"the {name} curve, against {_OTHERS[way]}", ratios[name][way], bar)
        for name, bars in CURVE_BARS.items()
        if name in ratios
        for way, bar in bars.items()
    ]
    steps = [_bar(f"a step, {kind}, against Trainer", ratios["step"][kind], bar) for kind, bar in STEP_BARS.items()]
    rates = [
        _bar(f"share of the multiply rate, {kind}", shares[kind], bar, "share") for kind, bar in SHARE_BARS.items()
    ]
    return [*curves, *steps, *rates]


def _bar(what: str, measured: float, bar: float, unit: str = "times") -> dict[str, Any]:
    return {"what": what, "measured": measured, "bar": bar, "unit": unit, "is_met": measured >= bar}
