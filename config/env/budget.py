"""Reads the default budget of a run from the environment."""

from collections.abc import Mapping

from config.env.errors import InvalidSetting
from runtime.core.documents.budget_text import InvalidBudget, budget_of, from_form
from runtime.core.run.budgets import BudgetLimits

PREFIX = "SIGNOFF_BUDGET_"
NAMES = ("turns", "tokens", "usd", "seconds")


def read(variables: Mapping[str, str]) -> BudgetLimits | None:
    """Return the budget, or None if no limit is set. Raise InvalidSetting."""
    try:
        return budget_of(
            from_form({name: variables.get(PREFIX + name.upper(), "") for name in NAMES})
        )
    except InvalidBudget as exc:
        raise InvalidSetting(PREFIX + exc.name.upper(), exc.why) from None
