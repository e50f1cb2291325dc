"""The budget fields of the start form: one optional field for each limit."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from runtime.core.budgets import Budget
from runtime.core.documents.budget_text import (
    NAMES,
    from_form,
    to_text,
    unit_of,
)
from runtime.errors import InvalidInput

PREFIX = "budget."


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetField:
    """One field. `most` is the installation's limit, None if it has none."""

    name: str
    unit: str
    raw: str
    error: str
    most: str | None

    @property
    def id(self) -> str:
        """The id of the field on the page."""
        return f"budget-{self.name.removeprefix(PREFIX)}"


def budget_fields(
    posted: Mapping[str, str], problem: InvalidInput | None = None
) -> tuple[BudgetField, ...]:
    """Return the fields as submitted, with the problem of one of them."""
    bounds: Budget = settings.ABEYANCE_BUDGET or Budget()
    found = []
    for name, limit in NAMES.items():
        most = bounds.of(limit)
        sent = PREFIX + name
        found.append(
            BudgetField(
                name=sent,
                unit=unit_of(limit),
                raw=posted.get(sent, ""),
                error=problem.detail if problem is not None and problem.field == sent else "",
                most=None if most is None else to_text(limit, most),
            )
        )
    return tuple(found)


def read(posted: Mapping[str, str]) -> dict[str, object]:
    """Return the budget as submitted. The start of the run checks it."""
    return from_form({name: posted.get(PREFIX + name, "") for name in NAMES})
