"""The budget that an author gives an agent."""

from dataclasses import asdict, dataclass
from decimal import Decimal

from agents.errors import DefinitionError
from runtime.core.documents.budget_text import InvalidBudget, budget_of
from runtime.core.run import budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one activation of an agent, with everything below it; None means no limit.

    `turns` counts replies of models, `calls` starts of tools, `tokens` those of requests and replies. `usd` is money
    in US dollars to six decimals, `seconds` active time without waiting for people, `depth` the levels of agents,
    this one included.
    """

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    usd: Decimal | str | float | None = None
    seconds: float | None = None
    depth: int | None = None

    def read(self, label: str) -> budgets.BudgetLimits | None:
        """Return the budget as the engine stores it. Raise DefinitionError."""
        try:
            return budget_of(asdict(self))
        except InvalidBudget as exc:
            raise DefinitionError(f"{label}: its budget: {exc}") from exc
