"""What the speed bench found, as tables to read: ratios first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.others import WAYS
from bench.workload import KINDS
from frostline.report import numbers

Found = dict[str, Any]

_NAMES = {**WAYS, "frostline": "frostline"}


def tables(found: Found) -> str:
    """All tables, one after another."""
    parts = [_stated(found), *_blocks(found)]
    return "\n\n".join(parts)


def _blocks(found: Found) -> Iterator[str]:
    yield _bars(found)
    yield from (_curve(found, name) for name in found["ratios"] if name != "step")
    yield _steps(found)
    yield _machine(found)
    if "memory" in found:
        yield _memory(found["memory"])
    yield _cache(found["cache"])
    if "growth" in found:
        yield from _growth(found["growth"])
    if "scores" in found:
        yield scores_table(found["scores"], found["asked"]["scored"])


def _stated(found: Found) -> str:
    """Where the numbers come from."""
    asked, hardware = found["asked"], found["circumstances"]["hardware"]
    steps = [
        f"  {_NAMES[way]}: {asked['repetitions']} × {number} steps of each kind of run"
        for way, number in asked["steps"].items()
    ]
    lines = [
        "frostline against Trainer: all-MiniLM-L6-v2 on SST-2, batches of 16",
        f"{hardware['processor']}, {found['samples']['n_cores']} cores.",
        "Ours is the whole command with imports, cold cache. The time of the others is extrapolated, without their",
        "imports and loading, from the medians of interleaved repetitions:",
        *steps,
    ]
    if asked["is_tiny"]:
        lines.insert(0, "TINY: a few rows only, to see that it works. No figure below means anything.")
    return "\n".join(lines)


def _bars(found: Found) -> str:
    rows = [
        (
            bar["what"],
            _amount(bar["measured"], bar["unit"]),
            f"≥ {_amount(bar['bar'], bar['unit'])}",
            "met" if bar["is_met"] else "NOT MET",
        )
        for bar in found["bars"]
    ]
    return _table("Ratios: how many times faster; what must be shown", ("", "measured", "bar", ""), rows)


def _amount(value: float, unit: str) -> str:
    return numbers.share(value) if unit == "share" else _times(value)


def _times(value: float) -> str:
    return f"{value:.0f}×" if value >= 99.95 else f"{value:.1f}×" if value >= 9.995 else f"{value:.2f}×"


def _curve(found: Found, name: str) -> str:
    ratios = found["ratios"][name]
    rows = [
        (_NAMES[way], numbers.duration(seconds), _times(ratios[way]) if way in ratios else "")
        for way, seconds in found["seconds"][name].items()
    ]
    return _table(f"The {name} curve: {found['asked'][name]}", ("", "time", "frostline is faster by"), rows)


def _steps(found: Found) -> str:
    others, ours = found["step_seconds"]["others"], found["step_seconds"]["frostline"]
    ratios = found["ratios"]["step"]
    headers = ("", "Trainer", "bare loop", "Trainer to 128", "frostline", "faster than Trainer")
    rows = [
        (kind, *(_milliseconds(others[way][kind]) for way in WAYS), _milliseconds(ours[kind]), _times(ratios[kind]))
        for kind in KINDS
    ]
    title = "A training step, ms; frostline: effective, all processes together"
    dev = ", ".join(f"{_NAMES[way]} {seconds:.2f} s" for way, seconds in found["dev_seconds"].items())
    return f"{_table(title, headers, rows)}\nScoring dev once: {dev}."


def _machine(found: Found) -> str:
    machine = found["machine"]
    rows = [
        (kind, f"{machine['operations_per_step'][kind] / 1e9:.3f}", numbers.share(machine["share_reached"][kind]))
        for kind in KINDS
    ]
    rate, tokens = machine["operations_per_second"] / 1e9, machine["tokens_per_step"]
    title = f"Arithmetic: one thread multiplies {rate:.0f} billion operations a second, all cores at it"
    table = _table(title, ("", "useful operations a step, 10⁹", "share of that rate"), rows)
    return (
        f"{table}\nUseful: matrix products over the {tokens:.0f} real tokens of a batch, forward and needed gradients."
    )


def _memory(memory: Found) -> str:
    rows = [
        (
            way,
            one["kind"],
            numbers.count(one["n_train"]),
            numbers.size(one["peak_bytes"]),
            numbers.size(one["above_imports_bytes"]),
        )
        for way in ("trainer", "frostline")
        for one in memory[way]
    ]
    headers = ("one process", "kind", "training rows", "peak", "above imports")
    commands = memory["all_processes_bytes"].items()
    whole = ", ".join(f"{name} curve {numbers.size(n_bytes)}" for name, n_bytes in commands)
    return f"{_table('Private memory', headers, rows, n_words=2)}\n`frostline curve`, all its processes: {whole}."


def _cache(cache: Found) -> str:
    depths = list(next(iter(cache.values()))["kept_by_depth"])
    rows = [
        (f"{name} curve", *(numbers.size(kept["kept_by_depth"][depth]) for depth in depths),
         numbers.size(sum(kept["kept_by_depth"].values())), numbers.size(kept["largest_of_a_run"]))
        for name, kept in cache.items()
    ]  # fmt: skip
    headers = ("", *(f"{depth} frozen" for depth in depths), "all", "largest of a run")
    return _table("Kept on disk: what frozen layers put out", headers, rows)


def _growth(growth: Found) -> Iterator[str]:
    layers = [(number, _milliseconds(seconds)) for number, seconds in growth["trained_layers"].items()]
    yield _table("Growth with trained layers: effective step, ms", ("layers", "a step"), layers)
    rows = [
        (numbers.count(int(number)), numbers.seconds(one["prefix_seconds"]), numbers.seconds(one["train_seconds"]))
        for number, one in growth["rows"].items()
    ]
    title = "Growth with training rows: freeze:3, one epoch and scoring, one process, s"
    yield _table(title, ("rows", "frozen layers", "training"), rows)
    kinds = list(next(iter(growth["length"].values())))
    rows = [
        (number, f"{by_kind[kinds[0]]['tokens']:.0f}", *(_milliseconds(by_kind[k]["step_seconds"]) for k in kinds))
        for number, by_kind in growth["length"].items()
    ]
    title = "Growth with length: a step on RTE pairs, one process, ms"
    yield _table(title, ("at most", "tokens a batch", *kinds), rows)
    workers = [(number, numbers.seconds(seconds)) for number, seconds in growth["workers"].items()]
    yield _table("Growth with workers: the small curve, s", ("workers", "time"), workers)


def scores_table(scores: Found, work: str) -> str:
    """Scores beside Trainer's, each way that it is used."""
    rows = [
        (
            way,
            kind,
            numbers.score(one["trainer"]),
            numbers.score(one["frostline"]),
            numbers.difference(one["difference"]),
            numbers.difference_interval(one["interval"]),
            "as good" if one["as_good"] else "WORSE",
        )
        for way, by_kind in scores.items()
        for kind, one in by_kind.items()
    ]
    title = f"Scores: accuracy on dev, mean of all seeds; {work}, at one rate"
    return _table(title, ("", "", "theirs", "frostline", "ours − theirs", "95% interval", ""), rows, n_words=2)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f}" if seconds < 0.01 else f"{1000 * seconds:.1f}"


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], n_words: int = 1) -> str:
    """Columns in line: the first ones, of words, on the left, the others on the right."""
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]

    def line(cells: Sequence[str]) -> str:
        set_ = [
            cell.ljust(width) if column < n_words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(set_).rstrip()

    return "\n".join([title, line(headers), "─" * len("  ".join("x" * width for width in widths)), *map(line, rows)])
