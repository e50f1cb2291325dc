"""The form that proposes an allowance: a limit for each argument of a request, a count and an end."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals.errors import AllowanceRefused
from approvals.governance import allowance_changes
from approvals.governance.allowance_changes import LimitedArgument
from approvals.reads import approval_views
from approvals.rights import principals
from approvals.rules.allowance_terms import MAX_COUNT, MAX_DAYS, ORDERED, LimitRule
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.web.requests import form_text

_LABELS = {
    LimitRule.EQUALS: "exactly this value",
    LimitRule.ONE_OF: "one of these, one a line",
    LimitRule.AT_MOST: "at most, from 0",
    LimitRule.AT_LEAST: "at least",
    LimitRule.BETWEEN: "between two, one a line",
    LimitRule.ANY: "any value",
}
_DEFAULTS = {"count": "20", "days": "7"}


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
        return _text(self.argument.value)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def allow(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show the form, or propose the allowance."""
    actor = principals.actor_of(request.user)
    approval = approval_views.approval(approval_id, actor=actor)
    limited, refused = allowance_changes.source(approval_id, actor=actor)
    if request.method != "POST":
        return _page(request, approval, limited, refused)
    try:
        allowance = allowance_changes.propose(
            approval_id,
            limits={
                limit.name: _limit(request, number, limit) for number, limit in enumerate(limited)
            },
            count=form_text(request.POST, "count"),
            days=form_text(request.POST, "days"),
            actor=actor,
        )
    except (InvalidInput, AllowanceRefused, Forbidden) as problem:
        return _page(request, approval, limited, refused, problem)
    messages.success(request, "The allowance is proposed. A second person must confirm it.")
    return redirect("allowance", allowance)


def _limit(request: HttpRequest, number: int, argument: LimitedArgument) -> dict[str, Any]:
    rule = form_text(request.POST, f"rule.{number}")
    text = form_text(request.POST, f"values.{number}")
    several = rule in (LimitRule.ONE_OF, LimitRule.BETWEEN)
    lines = [line for line in text.split("\n") if line.strip()] if several else [text]
    values = [] if rule == LimitRule.ANY else [_value(line, argument) for line in lines]
    return {"rule": rule, "values": values}


def _value(text: str, argument: LimitedArgument) -> Any:
    """Read a value as the argument's own kind: a text as it is, any other as JSON. Raises InvalidInput."""
    if isinstance(argument.value, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(
            f"limits.{argument.name}", f"needs JSON, such as {_text(argument.value)}"
        ) from exc


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    limited: tuple[LimitedArgument, ...],
    refused: str | None,
    problem: RequestError | None = None,
) -> HttpResponse:
    fields = [_field(request, number, limit, problem) for number, limit in enumerate(limited)]
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


def _field(
    request: HttpRequest, number: int, argument: LimitedArgument, problem: RequestError | None
) -> LimitField:
    value = argument.value
    counts = isinstance(value, int | float | str) and not isinstance(value, bool)
    rules = [rule for rule in _LABELS if counts or rule not in ORDERED]
    start = LimitRule.ANY if argument.secret else LimitRule.EQUALS
    is_named = problem is not None and problem.field == f"limits.{argument.name}"
    return LimitField(
        number=number,
        argument=argument,
        rules=tuple(
            (str(rule), _LABELS[rule]) for rule in ([LimitRule.ANY] if argument.secret else rules)
        ),
        rule=request.POST.get(f"rule.{number}", str(start)),
        text=form_text(request.POST, f"values.{number}") if request.POST else _text(value),
        wrong=problem.detail if is_named and problem is not None else "",
    )
