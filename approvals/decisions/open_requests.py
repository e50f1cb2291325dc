"""Builds the requests of a step that opens gates or passes calls by an allowance, as parts of its one statement.

The requests follow the end of the run's audit chain, which the claim of the run or a query has read. If another
transaction appends to the chain meanwhile, the step is not written, and the runner builds it again.

An instance is told by its webhook that its request has ended: `request.resolved`, once for each request.

The message is added with the request, so it cannot be lost, and is composed when the request has ended. A decision
wakes it in the statement that records it, and so do a cancellation and an expiry; the deadline wakes it by itself. A
message that is woken too early, as by a decision that was undone, waits again.
"""

import json
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from pydantic_core import to_json

from approvals import clock
from approvals.decisions import external_requests
from approvals.errors import PolicyBroken
from approvals.governance import policies
from approvals.models import Approval, OutboxMessage
from approvals.outbox import messages, webhook
from approvals.outbox.messages import AttemptResult, Content, MessageKind
from approvals.people import instances
from approvals.requests import snapshot
from approvals.rules.judge import without_policy
from approvals.signed import audit, rows
from runtime.core.documents import external_call
from runtime.core.run.continuation import merge_people
from runtime.core.values.verdicts import FRAME_GATES
from runtime.models import Run
from runtime.ports.approvals import Allowed, EndedCall, ReviewSnapshot, StatementPart
from runtime.store import pool

log = logging.getLogger(__name__)

UNREADABLE = "unreadable"  # instead of the version

_LAST = """
    SELECT clock_timestamp(), coalesce(max(a.seq), 0), coalesce(max(a.hash), '')
    FROM (SELECT seq, hash FROM approvals_auditentry WHERE run_id = %(run)s ORDER BY seq DESC LIMIT 1) a
"""
_COLUMNS = tuple(field.attname for field in Approval._meta.concrete_fields)  # noqa: SLF001 - its documented API
# The rows as a JSON list, each with our columns by their names; a later release may have added others.
_REQUESTED = f"""
    INSERT INTO approvals_approval ({", ".join(_COLUMNS)})
    SELECT {", ".join(f"r.{name}" for name in _COLUMNS)}
    FROM run, json_populate_recordset(NULL::approvals_approval, %(approvals)s::json) r
"""
WINDOW = timedelta(hours=168)  # after the decision
AT_LEAST = timedelta(seconds=1)  # between two looks at a pending request


def read_last_audit_row(connection: pool.Connection, run: UUID) -> tuple[datetime, audit.Last]:
    """Read the clock and the end of the run's audit chain."""
    row = pool.fetch_row(connection, _LAST, {"run": run})
    assert row is not None  # an aggregate has one row
    return rows.to_utc(row[0]), audit.Last(seq=row[1], hash=row[2])


def build(
    snapshots: Sequence[ReviewSnapshot], origin: Collection[str], *, at: datetime, last: audit.Last
) -> tuple[StatementPart, ...]:
    """Build a request for each snapshot, all of one run, and their audit rows after `last`.

    `origin` lists the people in the run's origin by its row; the snapshots may name more.
    """
    run = snapshots[0].run
    # A microsecond apart, so that the requests of a turn keep the order of its calls.
    approvals = [
        snapshot.build_request(
            review,
            at + n * timedelta.resolution,
            merge_people(review.origin, origin),
            _judge_call(review),
        )
        for n, review in enumerate(snapshots)
    ]
    entries = list[audit.Row]()
    for approval, review in zip(approvals, snapshots, strict=True):
        details: dict[str, str | None] = {
            "digest": approval.approval_digest,
            "requester": approval.requester,
        }
        acts = [("requested", details)]
        if review.allowed is not None:
            acts.append(decide_by_allowance(approval, review.allowed))
        for act, detail in acts:
            entry = audit.build_next_entry(
                last,
                run=run,
                actor=None,
                act=act,
                subject=audit.name_subject(approval.id),
                detail=detail,
                at=approval.created_at,
            )
            entries.append(entry)
            last = audit.Last(seq=entry["seq"], hash=entry["hash"])
    # An allowance may have approved the call already.
    is_decided = approvals[0].status != Approval.Status.PENDING
    is_external = approvals[0].path[0] == external_call.AGENT
    rows = [{name: getattr(approval, name) for name in _COLUMNS} for approval in approvals]
    return (
        *record_uses(approvals),
        StatementPart(
            name="requested",
            sql=_REQUESTED,
            parameters={"approvals": to_json(rows).decode()},
        ),
        snapshot.build_schema_part(
            sorted({text for review in snapshots for text in snapshot.list_schema_texts(review)})
        ),
        *audit.build_append_parts(entries),
        *([messages.build_wake(None)] if is_decided and is_external else ()),
    )


def _judge_call(call: ReviewSnapshot) -> snapshot.Judged:
    """Evaluate a call by the policy in force. Other gates have the default policy.

    If the policy cannot be read, the request demands the most that a policy can. The step must be written: its call
    has already fallen into doubt.
    """
    if call.kind in FRAME_GATES:
        return snapshot.Judged(risk=str(call.risk))
    try:
        version, judgement = policies.judge(policies.build_facts(call, call.args, call.risk))
    except PolicyBroken as exc:
        log.error("Run %s: a request demands the most, because %s", call.run, exc)
        version, judgement = UNREADABLE, without_policy(str(exc))
    demands = judgement.demands
    if demands is not None and call.kind.is_question:
        demands = demands.demand_one_person()
    return snapshot.Judged(version=version, risk=str(judgement.risk), demands=demands)


CHANNEL = "allowance"
_BEFORE_USES = 2  # acts: the proposal and the confirmation

_USED = """
    INSERT INTO approvals_allowanceact (allowance, seq, act, at, run, frame, call, approval)
    SELECT u.allowance, u.seq, 'used', u.at, run.id, u.frame, u.call, u.approval
    FROM run, json_to_recordset(%(uses)s::json) AS u (
        allowance uuid, seq int, at timestamptz, frame text, call text, approval uuid)
"""


def decide_by_allowance(approval: Approval, allowed: Allowed) -> tuple[str, dict[str, str | None]]:
    """Approve the request by the allowance, and return the act with its detail for the audit."""
    use = allowed.use
    approval.status = Approval.Status.APPROVED
    approval.decided_by, approval.decided_at = use.by[-1], approval.created_at
    approval.reason, approval.channel = "", CHANNEL
    approval.statement, approval.signature, approval.key_id = allowed.proof
    detail: dict[str, str | None] = {
        "allowance": str(use.id),
        "use": f"{use.number} of {use.of}",
        "made by": ", ".join(use.by),
    }
    return str(approval.status), detail


def record_uses(approvals: Sequence[Approval]) -> tuple[StatementPart, ...]:
    """Return the part of a step that adds the uses, none without any.

    If another step took the same use, or a person revoked the allowance, the step is not written.
    """
    rows = [
        {
            "allowance": approval.allowance,
            "seq": _BEFORE_USES + approval.allowance_use,
            "at": approval.created_at,
            "frame": approval.frame,
            "call": approval.call,
            "approval": approval.id,
        }
        for approval in approvals
        if approval.allowance is not None and approval.allowance_use is not None
    ]
    if not rows:
        return ()
    parameters: dict[str, object] = {"uses": to_json(rows).decode()}
    return (
        StatementPart(name="used", sql=_USED, parameters=parameters, overtaken="allowance_order"),
    )


# The last decision on a call, and earlier ones that left it in doubt, get the same outcome. An undecided request has
# no place in the history.
_RECORD = """
    INSERT INTO approvals_approvaloutcome (approval_id, run_id, frame, call, outcome, position, decided_at)
    SELECT r.id, r.run_id, e.frame, e.call, e.outcome, %(ended_at)s, r.decided_at
    FROM run, json_to_recordset(%(ended)s::json) AS e (gate uuid, frame text, call text, outcome text),
        LATERAL (
            SELECT id, run_id, decided_at FROM approvals_approval WHERE gate = e.gate AND run_id = run.id
            UNION
            SELECT d.id, d.run_id, d.decided_at
            FROM approvals_approvaloutcome o JOIN approvals_approval d ON d.id = o.approval_id
            WHERE o.run_id = run.id AND o.outcome = 'in_doubt' AND o.frame = e.frame AND o.call = e.call
        ) AS r
    WHERE r.decided_at IS NOT NULL
    ON CONFLICT (approval_id) DO UPDATE SET outcome = EXCLUDED.outcome, position = EXCLUDED.position
"""


def record_outcomes(ended: Sequence[EndedCall], *, position: int) -> StatementPart:
    """Return the part of an engine statement that records how these calls ended, at the entry `position`."""
    rows = [
        {
            "gate": end.gate,
            "frame": end.frame,
            "call": end.call,
            "outcome": end.outcome,
        }
        for end in ended
    ]
    return StatementPart(
        name="ended",
        sql=_RECORD,
        parameters={"ended": to_json(rows).decode(), "ended_at": position},
    )


class ResolvedRequests(MessageKind):
    """Composes and sends `request.resolved`."""

    def compose(self, message: OutboxMessage) -> Content | datetime | None:
        """Return the event; when to look again at a pending request; None if its webhook came later or is gone."""
        row = instances.find_webhook(message.destination)
        run = Run.objects.filter(pk=message.subject, removed_at=None, archived_at=None).first()
        if row is None or run is None:
            return None
        now = clock.read_time()
        state = external_requests.read_state(run, now)
        if state.status is external_requests.RequestStatus.PENDING:
            return max(external_requests.read_next_change(run, now), now + AT_LEAST)
        assert state.at is not None  # it is final
        if state.at < row.since:
            return None
        body = {
            "id": str(message.id),
            "type": instances.RESOLVED,
            "instance_id": message.destination,
            "request_id": message.subject,
            "created_at": clock.to_wire(state.at),
        }
        return Content(body=json.dumps(body), occurred_at=state.at, gives_up_at=state.at + WINDOW)

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Post the event to the present address of the instance."""
        row = instances.find_webhook(message.destination)
        if row is None or message.body is None:
            return None
        secret = instances.unseal_webhook_secret(row)
        return webhook.post(
            row.url, secrets=[secret], message_id=str(message.id), body=message.body
        )
