"""SetFit: contrastive training on pairs of the training rows, then a linear head (Tunstall 2022). For few examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from frostline.errors import UsageError
from frostline.kinds import kind_named
from frostline.records.plans import Plan
from frostline.records.specs import TaskSpec
from frostline.strategies.strategy import Strategy, read_number

if TYPE_CHECKING:
    from frostline.model.stack import Stack


@final
@dataclass(frozen=True)
class SetFit(Strategy):
    """Train all layers and embeddings so that rows of one class are alike, then fit a linear head, as the library does.

    Its pairs grow with the square of the rows: `setfit:R` draws R pairs of each kind per row instead of all.
    """

    n_iterations: int | None = None

    forms = "setfit, or setfit:R for R pairs of each kind per row instead of all"
    example = "setfit"

    @classmethod
    def read(cls, argument: str) -> SetFit:
        """`setfit`, `setfit:20`."""
        return cls(read_number(argument, least=1) if argument else None)

    @property
    def name(self) -> str:
        """`setfit`, `setfit:R`."""
        return "setfit" if self.n_iterations is None else f"setfit:{self.n_iterations}"

    def plan(self, stack: Stack) -> Plan:
        """Embeddings and layers, and a new linear head; the model's own head is not used."""
        from frostline.model.added.readers import READER
        from frostline.model.inside.setfit import SETFIT_PARAMETERS, check_setfit, check_trunk

        check_setfit()
        check_trunk(stack)
        own = set(stack.structure.above_parameters)
        trained = tuple(name for name in stack.all_parameters if name not in own)
        return Plan.one_phase(trained=(*trained, *SETFIT_PARAMETERS), added=(READER,), fit="contrastive")

    def add_modules(self, stack: Stack) -> None:
        """Adds a reader of sentence embeddings that is not fitted yet."""
        from frostline.model.inside.setfit import add_embedding_reader

        add_embedding_reader(stack)

    def merge_modules(self, stack: Stack) -> bool:  # noqa: ARG002
        """False: the model's class has no place for another head."""
        return False

    @property
    def has_rate(self) -> bool:
        """False: the library trains at its own rate, for its own number of steps."""
        return False

    def resolved(self, n_layers: int, kind: str) -> SetFit:  # noqa: ARG002
        """The same strategy; raises where labels are not classes."""
        if kind_named(kind).fit != "logreg":
            raise UsageError(f"strategy {self.name!r} is for classification; the task is {kind}: use features or full")
        return self

    def check_task(self, task: TaskSpec) -> None:
        """Raises where rows are pairs of texts: the library embeds single texts."""
        if task.text_pair is not None:
            raise UsageError(
                f"strategy {self.name!r} is for single texts; the rows of {task.name} are pairs: use full, freeze:N or "
                "features"
            )

    def n_pairs(self, n_rows: int, n_classes: int) -> int:
        """About how many pairs it trains on, if the classes are equally large."""
        if self.n_iterations is not None:
            return 2 * self.n_iterations * n_rows
        # As the library draws them: a row is also paired with itself, and the fewer kind is repeated.
        of_one_class = n_classes * (n_rows // n_classes) * (n_rows // n_classes + 1) // 2
        return 2 * max(of_one_class, n_rows * (n_rows + 1) // 2 - of_one_class)
