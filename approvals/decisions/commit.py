"""Commits a decision with two statements: one reads everything it depends on, one writes all of it or nothing.

No row is locked in between, and the second statement waits for no lock. It writes only if the gate is open, the request
is pending with the same digest, and the run's audit chain has no new row. Each act on a request adds such a row.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from approvals.errors import AlreadyDecided
from approvals.models import Approval
from approvals.outbox import messages
from approvals.requests import snapshot, verification
from approvals.rights import principals
from approvals.rules.policy import Demands
from approvals.signed import audit, rows, statements, votes
from runtime.control.user_actions import settle
from runtime.core.documents import external_call
from runtime.core.values.enums import Decision
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import GateNotOpen
from runtime.ports.access import Actor
from runtime.ports.approvals import StatementPart
from runtime.reads import journal
from runtime.store import pool

PAGE: Final = "page"

_LOAD: Final = f"""
        clock_timestamp(),
        EXISTS (SELECT FROM runtime_gate g JOIN runtime_run ON runtime_run.id = g.run_id
            WHERE g.id = r.gate AND g.state = 'open' AND num_nulls(runtime_run.ended_at) = 1),
        (SELECT count(*) FROM approvals_auditentry a
            WHERE a.run_id = r.run_id AND a.act = %(undone)s AND a.subject = 'request ' || r.id),
        coalesce(last.seq, 0), coalesce(last.hash, ''), {principals.CREDENTIALS},
        {journal.build_unreadable_sql("r.run_id")}, {rows.APPROVAL_COLUMNS}
    FROM approvals_approval r LEFT JOIN LATERAL (
        SELECT seq, hash FROM approvals_auditentry WHERE run_id = r.run_id ORDER BY seq DESC LIMIT 1
    ) last ON true WHERE
"""
# Only a request with a rule has votes, and to read them takes Postgres almost half as long as all the rest.
_HEADS: Final = (
    "SELECT NULL,",
    f"SELECT {votes.build_votes_sql(principals.build_credentials_sql('v.person'))},",
)
_BY_ID: Final = tuple(f"{head}{_LOAD} r.id = %(approval)s" for head in _HEADS)
_BY_GATE: Final = tuple(
    f"{head}{_LOAD} r.run_id = %(run)s AND r.gate = %(gate)s" for head in _HEADS
)

_RULE: Final = 8 + rows.list_columns(Approval).index("rule")

# `status || ''` keeps Postgres from using the index of pending requests, which it would have to read completely.
_CLOSE: Final = """
    UPDATE approvals_approval SET status = %(r_status)s, decided_by = %(r_by)s, decided_at = %(r_at)s,
        effective_at = %(effective_at)s, reason = %(r_reason)s, statement = %(r_statement)s, channel = %(r_channel)s,
        decided_for = %(r_for)s,
        signature = %(r_signature)s, key_id = %(r_key)s, edited = %(r_edited)s,
        edited_preview = %(r_edited_preview)s
    FROM run WHERE approvals_approval.id = %(r_id)s AND status || '' = 'pending' AND approval_digest = %(r_digest)s
    RETURNING approvals_approval.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedApproval:
    """A request as read at `at`, with the state of its gate and the number of undone decisions on it.

    `principal` holds the rights of the actor, `last` is the end of the run's audit chain. `unreadable` are the
    positions of its entries that no page can show. `channel` is where a person decides without a token.
    """

    approval: Approval
    principal: principals.Principal | None
    at: datetime
    is_open: bool
    undone: int
    last: audit.Last
    unreadable: Sequence[int]
    votes: str | None = None  # as `signed.votes` reads them
    channel: str = PAGE

    @property
    def demands(self) -> Demands | None:
        """What the policy demands; None for the default policy."""
        return votes.read_demands(self.approval)


def load(approval_id: UUID, actor: Actor) -> LoadedApproval | None:
    """Read the request with this id, None if there is none."""
    return _load(_BY_ID, {"approval": approval_id}, actor)


def load_at_gate(run: UUID, gate: UUID, actor: Actor) -> LoadedApproval | None:
    """Read the request of this gate of this run, None if there is none."""
    return _load(_BY_GATE, {"run": run, "gate": gate}, actor)


def close(
    loaded: LoadedApproval, decision: Decision, actor: Actor, counted: Sequence[str] = ()
) -> None:
    """Sign the decision and write it. Raises GateNotOpen, with nothing written, if a value has changed since.

    `counted` are the digests of the votes that it counts.
    """
    approval = loaded.approval
    approval.status = VERDICTS[decision.verdict].status
    approval.decided_by, approval.decided_at, approval.reason = (
        decision.by,
        loaded.at,
        decision.reason,
    )
    approval.channel = "api" if actor.token else loaded.channel
    approval.edited = approval.edited_preview = None
    if decision.edit is not None:
        approval.edited, preview = snapshot.encode_value(decision.edit.args), decision.edit.preview
        if preview is not None:
            approval.edited_preview = snapshot.encode_value(preview.document)
    statements.sign(
        approval,
        statements.make(approval, decision, loaded.at, loaded.undone, counted, actor.authenticated),
    )
    settle(
        gate=approval.gate,
        decision=decision,
        effective_at=approval.effective_at,
        extra_statements=(
            _build_close_part(approval),
            *_build_audit_parts(loaded, decision, actor),
            *(
                [messages.build_wake(approval.effective_at)]
                if _must_tell_instance(approval)
                else ()
            ),
        ),
    )


@contextmanager
def make_last_attempt() -> Iterator[None]:
    """Run the block in a transaction, in which the caller locks the run. Raise AlreadyDecided if the gate is closed."""
    try:
        with transaction.atomic():
            yield
    except GateNotOpen as exc:
        raise AlreadyDecided(None) from exc


def _load(
    statements: tuple[str, ...], of: dict[str, object], actor: Actor
) -> LoadedApproval | None:
    without_votes, with_votes = statements
    parameters = {**of, "undone": audit.UNDONE, **principals.build_parameters(actor)}
    with pool.join_transaction() as connection:
        row = pool.fetch_row(connection, without_votes, parameters)
        if row is not None and row[_RULE] is not None:
            row = pool.fetch_row(connection, with_votes, parameters)
    if row is None:
        return None
    cast, at, is_open, undone, seq, mac, credentials, unreadable = row[:8]
    return LoadedApproval(
        approval=rows.read_approval(row[8:]),
        principal=principals.restore_principal(actor, credentials, at),
        at=rows.to_utc(at),
        is_open=is_open,
        undone=undone,
        last=audit.Last(seq=seq, hash=mac),
        unreadable=unreadable,
        votes=cast,
    )


def _build_close_part(approval: Approval) -> StatementPart:
    return StatementPart(
        name="closed",
        sql=_CLOSE,
        parameters={
            "r_id": approval.id,
            "r_digest": approval.approval_digest,
            "r_status": str(approval.status),
            "r_by": approval.decided_by,
            "r_for": approval.decided_for,
            "r_at": approval.decided_at,
            "r_reason": approval.reason,
            "r_statement": approval.statement,
            "r_signature": approval.signature,
            "r_key": approval.key_id,
            "r_channel": approval.channel,
            "r_edited": approval.edited,
            "r_edited_preview": approval.edited_preview,
        },
        required=True,
    )


def _build_audit_parts(
    loaded: LoadedApproval, decision: Decision, actor: Actor
) -> tuple[StatementPart, ...]:
    approval = loaded.approval
    detail: dict[str, Any] = {}
    if VERDICTS[decision.verdict].carries == "grant":
        detail["granted"] = decision.result
    if approval.decided_for is not None:
        detail["for"] = approval.decided_for
    if decision.edit is not None:
        detail["edited"] = decision.edit.digest
    entry = audit.build_next_entry(
        loaded.last,
        run=approval.run_id,
        actor=actor,
        act=approval.status,
        subject=audit.name_subject(approval.id),
        detail={
            "digest": approval.approval_digest,
            "verdict": decision.verdict,
            "reason": decision.reason,
            **detail,
        },
        at=loaded.at,
    )
    return audit.build_append_parts([entry])


def is_expired(approval: Approval, at: datetime) -> bool:
    """Tell whether this request is past its deadline and still stored as pending."""
    pending = approval.status == Approval.Status.PENDING
    return pending and approval.expires_at is not None and approval.expires_at <= at


def expire(approval: Approval, at: datetime) -> None:
    """Settle the gate of a request past its last deadline, as its demands say. Raises GateNotOpen."""
    decision = verification.build_expiry_decision(approval)
    settle(gate=approval.gate, decision=decision)
    _close_unsigned(
        approval,
        Approval.Status.EXPIRED,
        actor=None,
        at=at,
        reason=decision.reason,
        detail={"verdict": decision.verdict},
    )


def cancel(approval: Approval, *, actor: Actor | None, at: datetime, reason: str) -> None:
    """Cancel a request whose gate the caller has closed."""
    _close_unsigned(approval, Approval.Status.CANCELLED, actor=actor, at=at, reason=reason)


def clear_decision(approval: Approval) -> None:
    """Remove the signed statement, and the arguments of an edit, from the row. The caller saves it."""
    approval.statement = approval.signature = approval.key_id = approval.effective_at = None
    approval.channel = approval.decided_for = None
    approval.edited = approval.edited_preview = None


def _close_unsigned(
    approval: Approval,
    status: Approval.Status,
    *,
    actor: Actor | None,
    at: datetime,
    reason: str,
    detail: Mapping[str, str] | None = None,
) -> None:
    approval.status, approval.decided_by = status, None if actor is None else actor.person
    approval.decided_at, approval.reason = at, reason
    clear_decision(approval)
    approval.save()
    audit.append_about(approval, actor=actor, act=status, at=at, reason=reason, **(detail or {}))
    if _must_tell_instance(approval):
        messages.wake(subject=str(approval.run_id))


def _must_tell_instance(approval: Approval) -> bool:
    """Tell whether an instance outside, which made the run, is told of each change."""
    return bool(approval.path[0] == external_call.AGENT)
