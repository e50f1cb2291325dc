"""Builds the requests of a step that opens gates or passes calls by an allowance, as parts of its one statement.

The requests follow the end of the run's audit chain, which the claim of the run or a query has read. If another
transaction appends to the chain meanwhile, the step is not written, and the runner builds it again.
"""

import json
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from approvals import clock
from approvals.decisions import allowed
from approvals.errors import PolicyBroken
from approvals.governance import policies
from approvals.models import Approval, AuditEntry
from approvals.requests import schemas, snapshot
from approvals.rules.judge import without_policy
from approvals.signed import audit
from runtime.core.run.continuation import merge_people
from runtime.core.values.enums import GateKind
from runtime.core.values.verdicts import FRAME_GATES
from runtime.ports.approvals import ReviewSnapshot, StatementPart
from runtime.store import pool
from runtime.store.pool import Connection

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


def last_audit_row(connection: Connection, run: UUID) -> tuple[datetime, audit.Last]:
    """Read the clock and the end of the run's audit chain."""
    row = pool.row(connection, _LAST, {"run": run}, prepare=True)
    assert row is not None  # an aggregate has one row
    return clock.to_utc(row[0]), audit.Last(seq=row[1], hash=row[2])


def build(
    snapshots: Sequence[ReviewSnapshot], origin: Collection[str], *, at: datetime, last: audit.Last
) -> tuple[StatementPart, ...]:
    """Build a request for each snapshot, all of one run, and their audit rows after `last`.

    `origin` lists the people in the run's origin by its row; the snapshots may name more.
    """
    run = snapshots[0].run
    # A microsecond apart, so that the requests of a turn keep the order of its calls.
    approvals = [
        snapshot.row(
            shown, at + n * timedelta.resolution, merge_people(shown.origin, origin), _judged(shown)
        )
        for n, shown in enumerate(snapshots)
    ]
    entries = list[AuditEntry]()
    for approval, shown in zip(approvals, snapshots, strict=True):
        asked: dict[str, str | None] = {
            "digest": approval.approval_digest,
            "requester": approval.requester,
        }
        acts = [("requested", asked)]
        if shown.allowed is not None:
            acts.append(allowed.decide(approval, shown.allowed))
        for act, detail in acts:
            entry = audit.following(
                last,
                run=run,
                actor=None,
                act=act,
                subject=f"request {approval.id}",
                detail=detail,
                at=approval.created_at,
            )
            entries.append(entry)
            last = audit.Last(seq=entry.seq, hash=entry.hash)
    rows = [_written(approval) for approval in approvals]
    return (
        *allowed.used(approvals),
        StatementPart(
            name="requested",
            sql=_REQUESTED,
            parameters={"approvals": json.dumps(rows, default=str)},
        ),
        schemas.stored(
            sorted({text for shown in snapshots for text in snapshot.schema_texts(shown)})
        ),
        *audit.appended(entries),
    )


def _judged(shown: ReviewSnapshot) -> snapshot.Judged:
    """Evaluate a call by the policy in force. Other gates have the default policy.

    If the policy cannot be read, the request demands the most that a policy can. The step must be written: its call
    has already fallen into doubt.
    """
    if shown.kind in FRAME_GATES:
        return snapshot.Judged(risk=str(shown.risk))
    try:
        version, found = policies.judge(policies.facts_of(shown, shown.args, shown.risk))
    except PolicyBroken as exc:
        log.error("Run %s: a request demands the most, because %s", shown.run, exc)
        version, found = UNREADABLE, without_policy(str(exc))
    demands = found.demands
    if demands is not None and shown.kind is GateKind.QUESTION:
        demands = demands.of_one_person()
    return snapshot.Judged(version=version, risk=str(found.risk), demands=demands)


def _written(approval: Approval) -> dict[str, object]:
    return {name: getattr(approval, name) for name in _COLUMNS}
