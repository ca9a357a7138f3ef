"""How often `find` decides, how often it is wrong, and what it costs, on simulated curves whose truth is known.

    python -m bench.finding --seed 20261118 [--searches 2000] [--world NAME …] [--json FILE]

The rules are those that `find` runs (`stats/search_rules.py`); the worlds are those of `bench.coverage`. An answer is
wrong if it is decided and another depth is the true operating point, over runs that do not fail and at the rates that
were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench import cells
from bench.cells import Cell
from bench.simulator import Drawn, Simulator, scored_runs
from bench.tables import percent, show
from bench.worlds import KEEP, World
from frostline import stats
from frostline.records.depth import FULL, Depth
from frostline.stats import search_rules
from frostline.stats.search_question import Decision, Outcome, Outcomes, Question
from frostline.studies.planning.axis import layer_forwards
from frostline.studies.planning.protocols import TUNED_RATES
from frostline.studies.planning.race import RACE_SEEDS, RUNGS

N_SEEDS = 5
ERROR = 0.05
"""the share of all searches that may decide wrongly"""
RACE = len(RACE_SEEDS) * (len(TUNED_RATES) * RUNGS[0][0] + RUNGS[0][1])
"""runs of a race that is not extended, in whole runs of the depth"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What many searches in one world gave."""

    world: str
    n_searches: int
    wrong: float
    """decided, and wrong: of all searches"""
    decided: float
    exact: float
    """the answer, decided or not, is the true depth"""
    plausible: float
    """the true depth is in the plausible set"""
    n_plausible: float
    """how large it is, on average"""
    cost: float
    """median, as a share of the whole curve"""
    loss: float
    """largest loss of true score from following an answer, below the bar; 0 if all answers keep the share"""

    @property
    def is_wrong_too_often(self) -> bool:
        """Whether more searches decide wrongly than may, two standard errors allowed."""
        return self.wrong > ERROR + 2 * math.sqrt(ERROR * (1 - ERROR) / self.n_searches)


def simulated(cell: Cell) -> Found:
    """The outcome of many searches."""
    rng = np.random.default_rng([cell.seed, *cell.world.encode()])
    simulator = Simulator(cell.simulated)
    rows = np.array([_searched(simulator, rng) for _ in range(cell.number)])
    wrong, decided, exact, plausible, n_plausible, _, _ = rows.mean(axis=0)
    return Found(
        world=cell.world,
        n_searches=cell.number,
        wrong=wrong,
        decided=decided,
        exact=exact,
        plausible=plausible,
        n_plausible=n_plausible,
        cost=float(np.median(rows[:, 5])),
        loss=float(rows[:, 6].max()),
    )


def question_of(world: World) -> Question:
    """What a search in this world is asked; its budget is the whole curve."""
    full = layer_forwards(world.n_layers)
    costs: dict[Depth, float] = {FULL: 1.0}
    costs |= {depth: layer_forwards(world.n_layers - depth) / full for depth in world.depths}
    return Question(
        keep=KEEP,
        chance=world.chance,
        seeds=tuple(range(N_SEEDS)),
        depths=world.depths,
        n_rows=world.n_rows,
        costs=costs,
        rate_costs={depth: RACE * cost for depth, cost in costs.items()},
        budget=(RACE + N_SEEDS) * sum(costs.values()),
    )


def _searched(simulator: Simulator, rng: np.random.Generator) -> tuple[float, ...]:
    world = simulator.world
    n_spare = N_SEEDS if world.failing else 0  # only failed runs are replaced
    drawn, question = simulator.draw(N_SEEDS + n_spare, rng), question_of(world)
    runs = _outcomes(world, drawn)
    outcomes: dict[Depth, dict[int, Outcome | None]] = {}
    while isinstance(step := search_rules.next_step(question, outcomes), list):
        for depth, seed in step:
            outcomes.setdefault(depth, {})[seed] = runs[depth][seed]
    return _judged(question, outcomes, step, drawn)


def _judged(question: Question, outcomes: Outcomes, end: Decision, drawn: Drawn) -> tuple[float, ...]:
    """Wrong, decided, exact, plausible, size of the set, cost, loss."""
    bar = stats.bar_of(KEEP, drawn.truth[FULL])
    true = stats.operating_depth({depth: drawn.truth[depth] for depth in question.depths}, bar)
    is_exact, plausible = end.n_frozen == true, search_rules.plausible(question, outcomes)
    done = [(depth, seed) for depth, by_seed in outcomes.items() for seed in by_seed]
    return (
        end.is_decided and not is_exact,
        end.is_decided,
        is_exact,
        true in plausible,
        len(plausible),
        question.cost(done) / question.budget,
        max(0.0, bar - drawn.truth[end.n_frozen]),
    )


def _outcomes(world: World, drawn: Drawn) -> dict[Depth, list[Outcome]]:
    """Every run as the rules look at it, by depth and seed."""
    return {
        depth: [
            Outcome(float(score), resampled, bool(has_failed))
            for score, resampled, has_failed in zip(one.scores, one.resampled.T, drawn.has_failed[depth], strict=True)
        ]
        for depth, one in scored_runs(world, drawn).items()
    }


COLUMNS: dict[str, Callable[[Found], str]] = {
    "world": lambda one: one.world,
    "decided wrongly": lambda one: percent(one.wrong),
    "decided": lambda one: percent(one.decided),
    "same depth": lambda one: percent(one.exact),
    "plausible set": lambda one: percent(one.plausible),
    "its size": lambda one: f"{one.n_plausible:.1f}",
    "cost": lambda one: percent(one.cost),
    "largest loss": lambda one: f"{one.loss:.3f}",
}


def main() -> None:
    """Prints a table, and the worlds where `find` is wrong too often."""
    asked = cells.parser(__doc__, "searches").parse_args()
    rows = cells.run(simulated, asked, [N_SEEDS], Found)
    show(rows, COLUMNS)
    cells.print_missed([one.world for one in rows if one.is_wrong_too_often])


if __name__ == "__main__":
    main()
