"""The page of version changes, for admins: each pair of versions with its waiting runs, decided once for all."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from approvals.decisions import batch
from approvals.errors import NotFound
from approvals.governance import version_changes as listing
from approvals.rights import principals
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput
from runtime.web.requests import admins, explain, read_actor, read_number, read_text

NOT_DECIDED = "No decision on this change counts any more."
LEFT = "{} of them were busy and still continue. Withdraw again below, before it is final."
GONE = "No run waits for this change any more."


@admins.guard_page
def show_version_changes(request: HttpRequest) -> HttpResponse:
    """Show the changes of agents for which runs wait."""
    return _show_page(request)


@admins.action
def continue_runs(request: HttpRequest) -> HttpResponse:
    """Let all runs that wait for one change continue."""
    count = request.POST.get("count", "").strip()
    try:
        number = read_number(count)
        decided = batch.continue_all(
            count=count if number is None else number, **_read_fields(request)
        )
    except (InvalidInput, Forbidden) as refused:
        return _show_page(request, explain(refused), status=refused.status)
    except NotFound as refused:
        return _show_page(request, GONE, status=refused.status)
    runs = "run continues" if decided.continued == 1 else "runs continue"
    messages.success(
        request, f"{decided.continued} {runs}. Runs that reach this change later do too."
    )
    if decided.left:
        messages.warning(request, f"{len(decided.left)} still wait: see below why.")
    return redirect("version_changes")


@admins.action
def withdraw_change(request: HttpRequest) -> HttpResponse:
    """Withdraw the decision on one change, so that later runs ask again."""
    try:
        withdrawn = batch.withdraw(**_read_fields(request))
    except InvalidInput as refused:
        return _show_page(request, explain(refused), status=refused.status)
    except NotFound as refused:
        return _show_page(request, NOT_DECIDED, status=refused.status)
    runs = f" {withdrawn.opened} of them wait again." if withdrawn.opened else ""
    messages.success(request, f"Withdrawn. Runs that reach this change later ask again.{runs}")
    if withdrawn.left:
        messages.warning(request, LEFT.format(withdrawn.left))
    return redirect("version_changes")


def _read_fields(request: HttpRequest) -> dict[str, Any]:
    """Return the change that the form names, the reason, and who sent it."""
    change = {name: request.POST.get(name) for name in ("agent", "before", "after")}
    return {
        **change,
        "reason": read_text(request.POST, "reason"),
        "actor": read_actor(request),
    }


def _show_page(request: HttpRequest, problem: str = "", *, status: int = 200) -> HttpResponse:
    principal = principals.find_principal(read_actor(request))
    denial = listing.find_refusal(principal)
    context = {
        "section": "overview",
        "changes": listing.list_waiting(principal),
        "decided": (*listing.list_half_withdrawn(), *listing.list_latest_decisions()),
        "refusal": denial.detail if denial else "",
        "problem": problem,
        "typed": request.POST,
        "max_reason": MAX_REASON,
    }
    return render(request, "approvals/version_changes.html", context, status=status)
