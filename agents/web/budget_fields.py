"""The budget fields of the start form: one optional field for each limit."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from runtime.core.budgets import BudgetLimits
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
    """One field. `maximum` is the installation's limit, None if it has none."""

    name: str
    unit: str
    raw: str
    error: str
    maximum: str | None

    @property
    def id(self) -> str:
        """The id of the field on the page."""
        return f"budget-{self.name.removeprefix(PREFIX)}"


def budget_fields(
    form_values: Mapping[str, str], problem: InvalidInput | None = None
) -> tuple[BudgetField, ...]:
    """Return the fields as submitted, with the problem of one of them."""
    bounds: BudgetLimits = settings.SIGNOFF_BUDGET or BudgetLimits()
    fields = []
    for name, limit in NAMES.items():
        maximum = bounds.of(limit)
        field_name = PREFIX + name
        fields.append(
            BudgetField(
                name=field_name,
                unit=unit_of(limit),
                raw=form_values.get(field_name, ""),
                error=problem.detail if problem is not None and problem.field == field_name else "",
                maximum=None if maximum is None else to_text(limit, maximum),
            )
        )
    return tuple(fields)


def read(form_values: Mapping[str, str]) -> dict[str, object]:
    """Return the budget as submitted. The start of the run checks it."""
    return from_form({name: form_values.get(PREFIX + name, "") for name in NAMES})
