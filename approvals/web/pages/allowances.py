"""The pages of allowances: the list, one with its uses, and the two acts on it.

The form that proposes an allowance: a limit for each argument of a request, a count and an end.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals.errors import AllowanceRefused
from approvals.governance import allowance_changes
from approvals.governance.allowance_changes import LimitedArgument
from approvals.reads import approval_views
from approvals.rights import principals
from approvals.rules.allowance_terms import MAX_COUNT, MAX_DAYS, ORDERED, LimitRule
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports.access import Actor
from runtime.web.requests import Audience, read_actor, read_text, redirect_with, users

_LABELS = {
    LimitRule.EQUALS: "exactly this value",
    LimitRule.ONE_OF: "one of these, one a line",
    LimitRule.AT_MOST: "at most, from 0",
    LimitRule.AT_LEAST: "at least",
    LimitRule.BETWEEN: "between two, one a line",
    LimitRule.ANY: "any value",
}
_DEFAULTS = {"count": "20", "days": "7"}


def _require_reader(actor: Actor) -> None:
    """Raise Forbidden for a person who neither decides nor administers."""
    if not allowance_changes.may_read_allowances(principals.find_principal(actor)):
        raise Forbidden("not_eligible", "This person may not read allowances.")


readers = Audience(_require_reader)


@readers.guard_page
def show_allowances(request: HttpRequest) -> HttpResponse:
    """List the newest allowances: those that wait, those in force, and past ones."""
    rows, broken = allowance_changes.list_allowances(read_actor(request))
    context = {
        "section": "allowances",
        "proposed": [row for row in rows if row.state == "proposed"],
        "live": [row for row in rows if row.state == "in force"],
        "past": [row for row in rows if row.state not in ("proposed", "in force")],
        "broken": broken,
    }
    return render(request, "approvals/allowances.html", context)


def show(
    request: HttpRequest, allowance_id: UUID, problem: RequestError | None = None
) -> HttpResponse:
    """Show one allowance with its uses, and why an act on it was refused."""
    row, uses = allowance_changes.read_with_uses(allowance_id, read_actor(request))
    context: dict[str, Any] = {
        "section": "allowances",
        "row": row,
        "uses": uses,
        "more": row.allowance.used - len(uses),
        "problem": problem,
        "reason": read_text(request.POST, "reason"),
        "max_reason": MAX_REASON,
    }
    status = 200 if problem is None else problem.status
    return render(request, "approvals/allowance.html", context, status=status)


allowance = readers.guard_page(show)


@readers.action
def confirm(request: HttpRequest, allowance_id: UUID) -> HttpResponse:
    """Put a proposed allowance in force."""
    message = "The allowance is in force."
    return _change(request, allowance_id, allowance_changes.confirm, message)


@readers.action
def revoke(request: HttpRequest, allowance_id: UUID) -> HttpResponse:
    """Revoke an allowance, or withdraw its proposal."""
    act = partial(allowance_changes.revoke, reason=read_text(request.POST, "reason"))
    message = "The allowance is revoked. Calls wait for people again."
    return _change(request, allowance_id, act, message)


def _change(
    request: HttpRequest, allowance_id: UUID, act: Callable[..., None], message: str
) -> HttpResponse:
    """Carry out an act on an allowance, or show why it is refused."""
    try:
        act(allowance_id, actor=read_actor(request))
    except (AllowanceRefused, Forbidden, InvalidInput) as refused:
        return show(request, allowance_id, refused)
    return redirect_with(request, message, "allowance", allowance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitField:
    """The inputs of one argument. `number` makes their names; `wrong` says why it is not valid."""

    number: int
    argument: LimitedArgument
    rules: tuple[tuple[str, str], ...]
    rule: str
    text: str
    wrong: str

    @property
    def requested(self) -> str:
        """The value in the request."""
        return _format_value(self.argument.value)


@users.form
def allow(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show the form, or propose the allowance."""
    actor = principals.make_actor(request.user)
    approval = approval_views.read_approval(approval_id, actor=actor)
    limited, refused = allowance_changes.read_source(approval_id, actor=actor)
    if request.method != "POST":
        return _show_form(request, approval, limited, refused)
    try:
        allowance = allowance_changes.propose(
            approval_id,
            limits={
                limit.name: _limit(request, number, limit) for number, limit in enumerate(limited)
            },
            count=read_text(request.POST, "count"),
            days=read_text(request.POST, "days"),
            actor=actor,
        )
    except (InvalidInput, AllowanceRefused, Forbidden) as problem:
        return _show_form(request, approval, limited, refused, problem)
    message = "The allowance is proposed. A second person must confirm it."
    return redirect_with(request, message, "allowance", allowance)


def _limit(request: HttpRequest, number: int, argument: LimitedArgument) -> dict[str, Any]:
    rule = read_text(request.POST, f"rule.{number}")
    text = read_text(request.POST, f"values.{number}")
    several = rule in (LimitRule.ONE_OF, LimitRule.BETWEEN)
    lines = [line for line in text.split("\n") if line.strip()] if several else [text]
    if rule == LimitRule.ANY:
        values = list[Any]()
    elif isinstance(argument.value, str):
        values = lines
    else:
        try:
            values = [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as exc:
            raise InvalidInput(
                f"limits.{argument.name}", f"needs JSON, such as {_format_value(argument.value)}"
            ) from exc
    return {"rule": rule, "values": values}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show_form(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    limited: tuple[LimitedArgument, ...],
    refused: str | None,
    problem: RequestError | None = None,
) -> HttpResponse:
    fields = list[LimitField]()
    for number, argument in enumerate(limited):
        value = argument.value
        counts = isinstance(value, int | float | str) and not isinstance(value, bool)
        rules = [rule for rule in _LABELS if counts or rule not in ORDERED]
        start = LimitRule.ANY if argument.secret else LimitRule.EQUALS
        is_named = problem is not None and problem.field == f"limits.{argument.name}"
        fields.append(
            LimitField(
                number=number,
                argument=argument,
                rules=tuple(
                    (str(rule), _LABELS[rule])
                    for rule in ([LimitRule.ANY] if argument.secret else rules)
                ),
                rule=request.POST.get(f"rule.{number}", str(start)),
                text=read_text(request.POST, f"values.{number}")
                if request.POST
                else _format_value(value),
                wrong=problem.detail if is_named and problem is not None else "",
            )
        )
    form = request.POST if request.method == "POST" else _DEFAULTS
    context = {
        "section": "inbox",
        "approval": approval,
        "refused": refused,
        "problem": problem,
        "is_named": any(field.wrong for field in fields),
        "fields": fields,
        "count": form.get("count", ""),
        "days": form.get("days", ""),
        "max_count": MAX_COUNT,
        "max_days": MAX_DAYS,
    }
    status = 200 if problem is None else problem.status
    return render(request, "approvals/allow.html", context, status=status)
