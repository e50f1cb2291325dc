"""A person's grant at a limit gate: how much more of each exhausted limit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.models import Approval
from approvals.reads.approval_views import ApprovalView
from runtime.core.documents.budget_text import NAMES, InvalidBudget, from_form, granted, unit_of
from runtime.core.values.enums import Verdict
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import InvalidInput

FIELD = "grant"
UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantField:
    """The field of one limit; several that are of the same kind are raised together."""

    name: str
    unit: str
    raw: str

    @property
    def id(self) -> str:
        """The id of the field on the page."""
        return f"grant-{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that was reached, with the agent or run it limits, the amount used and the amount allowed, as text."""

    of: str
    unit: str
    used: str
    allowed: str


def reached(approval: ApprovalView) -> tuple[Reached, ...]:
    """Return the limits of a limit gate in the engine's order; none at another gate, or if they cannot be read."""
    limits = approval.args.get("limits") if isinstance(approval.args, dict) else None
    if not approval.is_limit or not isinstance(limits, list):
        return ()
    return tuple(
        Reached(
            of=str(limit.get("of", "")),
            unit=unit_of(NAMES[limit["limit"]]),
            used=str(limit.get("used", "")),
            allowed=str(limit.get("allowed", "")),
        )
        for limit in limits
        if isinstance(limit, dict) and limit.get("limit") in list(NAMES)  # it may be unhashable
    )


def check(approval: Approval, verdict: Verdict, grant: object) -> object:
    """Return the grant as it was given, None if there is nothing to grant. Raises InvalidInput naming it."""
    if not approval.is_limit or VERDICTS[verdict].carries != "grant":
        if grant is not None:
            raise InvalidInput(FIELD, "is only for a limit that is raised")
        return None
    try:
        granted({} if grant is None else grant, {NAMES[name] for name in _reached(approval.args)})
    except InvalidBudget as exc:
        raise InvalidInput(f"{FIELD}.{exc.name}" if exc.name else FIELD, exc.detail) from exc
    return grant


def fields(approval: ApprovalView, form: Mapping[str, str]) -> tuple[GrantField, ...]:
    """Return a field for each limit that was reached, filled with the form's value or with the same amount again."""
    names = _names(approval.args) if approval.is_limit else []
    return tuple(
        GrantField(
            name=name,
            unit=unit_of(NAMES[name]),
            raw=form.get(f"{FIELD}.{name}", "" if form else _allowed(approval.args, name)),
        )
        for name in names
    )


def problem(error: InvalidInput) -> str:
    """Describe the problem of a grant and the values allowed instead."""
    name = error.field.removeprefix(FIELD).removeprefix(".")
    if name not in NAMES:
        return f"the grant {error.detail}. Enter a number, or unlimited."
    unit = unit_of(NAMES[name])
    return f"more {unit} {error.detail}. Enter a number of {unit}, or unlimited."


def read(form: Mapping[str, str]) -> dict[str, object]:
    """Read a grant from a submitted form, without validating it."""
    grants = from_form({name: form.get(f"{FIELD}.{name}", "") for name in NAMES})
    return {name: None if value == UNLIMITED else value for name, value in grants.items()}


def _reached(args: str) -> list[str]:
    return _names(json.loads(args))


def _allowed(args: Any, name: str) -> str:
    """Return the amount allowed until now, as the engine wrote it."""
    limits = (row for row in args["limits"] if isinstance(row, dict))
    amounts = (row.get("allowed") for row in limits if row.get("limit") == name)
    return str(next(amounts, ""))


def _names(args: object) -> list[str]:
    """Return the limit names that the engine wrote, covered by the request's MAC. Other values give no names."""
    limits = args.get("limits") if isinstance(args, dict) else None
    names = (
        [row.get("limit") for row in limits if isinstance(row, dict)]
        if isinstance(limits, list)
        else []
    )
    return [name for name in NAMES if name in names]
