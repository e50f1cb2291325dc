"""Calls through MCP gateways. Each is a run, which the same call finds until its result was collected.

Two calls are the same if the same token sends the same tool and arguments to the same gateway. A result is collected
when it was sent to a client that was still connected; the audit records it. So a client that disconnects, or whose web
process dies, gets the result of its call by the same call again. After that, the same call is a new one. A result can
be read any number of times by the token that asked, with the handle, which is the id of the run, and of the MCP task.
"""

import json
from typing import Any
from uuid import UUID

from django.db.models import Min, Q, QuerySet

from approvals.models import AuditEntry
from runtime.control import interventions
from runtime.control.start import start
from runtime.control.user_actions import open_transaction
from runtime.core.values.json_values import hash_value, require_json
from runtime.errors import NoSuchRun, RunEnded
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.labels import GATEWAY_KEY
from runtime.reads.transcript import read_reachable_transcript
from runtime.store import failpoints, runs

ASK, COLLECT = "gateway", "gateway_collect"  # failpoints
COLLECTED = "collected"  # the audited act of giving the result to the client
_CANCELLED = "The MCP client that asked has cancelled its call."


def ask(*, gateway: str, tool: str, arguments: Any, actor: Actor) -> UUID:
    """Start the run of a call, or find that of the same call whose result was not collected.

    Raise Forbidden; NotJson; UnknownAgent; InvalidInput.
    """
    require_json(arguments, "arguments")
    wiring.resolve_access().require(actor, "runs:start")
    digest = hash_value({"token": actor.token, "tool": tool, "arguments": arguments})
    ends = [build_business_key(digest, number) for number in (0, 10**9 - 1)]  # a range of the index
    rows = Run.objects.filter(agent=gateway, requester=actor.person, business_key__range=ends)
    last = rows.order_by("-business_key").first()
    if last is not None and not _is_over(last):
        return UUID(str(last.id))
    number = 0 if last is None else int(str(last.business_key).rpartition(":")[2]) + 1
    # Of two at once, one creates the run and the other finds it by the key.
    with open_transaction():
        started = start(
            agent=gateway,
            input={"tool": tool, "arguments": arguments},
            business_key=build_business_key(digest, number),
            actor=actor,
        )
        failpoints.hit("written", ASK, 0)
    failpoints.hit("committed", ASK, 0)
    return started.run


def read(*, gateway: str, run: UUID, actor: Actor) -> Any:
    """Return the run of a call of this token through this gateway, with `cancelled_at`, None if no one cancelled it.

    The worker of a cancelled call may go on. Raise NoSuchRun for any other run, and for one that is not kept here.
    """
    row = _select_calls(gateway, actor).filter(pk=run).first()
    if row is None:
        raise NoSuchRun
    return row


def find_answer(call: Run) -> dict[str, Any] | None:
    """Return the result of the run of a call; None before its end, and of one that did not complete."""
    return json.loads(call.output) if call.output else None


def may_be_made(call: Run) -> bool:
    """Tell whether a call that has no result changed the outside world, or may have: a cancellation undoes nothing."""
    return any(record.has_side_effects for record in read_reachable_transcript(call.id).calls())


def cancel(*, gateway: str, run: UUID, actor: Actor) -> None:
    """Cancel a call. From now on the same call is a new one. Raise NoSuchRun; RunEnded, also if it was cancelled.

    The token that asked may withdraw its call, also without the scope to cancel runs.
    """
    with open_transaction() as connection:
        status = runs.lock_row(connection, run).status
        call = read(gateway=gateway, run=run, actor=actor)
        if call.ended_at or call.cancelled_at:
            raise RunEnded(status)
        interventions.cancel_for(run=run, reason=_CANCELLED, actor=actor)
        wiring.resolve_approvals().record_audit(run=run, actor=actor, act=COLLECTED, detail={})


def collect(*, gateway: str, run: UUID, actor: Actor) -> None:
    """Record that the client has the result of an ended call; later ones change nothing. Raise NoSuchRun."""
    with open_transaction() as connection:
        runs.lock_row(connection, run)
        row = read(gateway=gateway, run=run, actor=actor)
        if row.ended_at is None:
            raise NoSuchRun
        if not _is_over(row):
            wiring.resolve_approvals().record_audit(run=run, actor=actor, act=COLLECTED, detail={})
        failpoints.hit("written", COLLECT, 0)
    failpoints.hit("committed", COLLECT, 0)


def build_business_key(digest: str, number: int) -> str:
    """Return the key of a run after so many collected ones. Keys of one call sort by it in every collation."""
    return f"{GATEWAY_KEY}{digest}:{number:09}"


def _select_calls(gateway: str, actor: Actor) -> QuerySet[Any]:
    is_cancel = Q(audit__act="cancelled", audit__subject__startswith="run ")
    return Run.objects.filter(
        agent=gateway,
        requester=actor.person,
        token=actor.token,
        business_key__startswith=GATEWAY_KEY,
        removed_at=None,
        archived_at=None,
    ).annotate(cancelled_at=Min("audit__at", filter=is_cancel))


def _is_over(run: Run) -> bool:
    """Tell whether the same call is a new one: the result was collected, or is no longer here."""
    if run.removed_at is not None or run.archived_at is not None:
        return True
    return AuditEntry.objects.filter(run=run.id, act=COLLECTED).exists()
