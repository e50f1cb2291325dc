"""Appends audit rows. Each row's MAC covers the row and the MAC of the row before it in the same run.

The caller locks the run's row in the transaction of the act, which serialises the chain. If a caller does not, the
unique (run, seq) rejects the second row. With the MAC key, which Postgres does not have, `verify` detects an edited,
deleted or inserted row. The chain alone does not show a deletion of its newest rows. So each append replaces the run's
head, a row whose MAC covers the number of rows and the MAC of the last one. A row without a head, or after it, is
refused too. And every request must have a row for its opening and one for its present status.

A writer of the tables can still put back an older head together with the rows of that time, or delete the head and
all rows of a run that has no request. Archived files and backups show that.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from pydantic_core import to_json

from approvals import clock
from approvals.errors import BrokenChain
from approvals.models import Approval, AuditEntry, AuditHead
from runtime.core.values.json_values import hash_value
from runtime.keyring import purposes, signatures
from runtime.ports.access import Actor, Expression
from runtime.ports.approvals import StatementPart

Row = Mapping[str, Any]  # an audited act, by the names of its columns

GENESIS = ""  # what the first row of a chain follows
UNDONE = "undone"
_DETAILS = json.JSONEncoder(ensure_ascii=False, sort_keys=True)
_LOCK = "SELECT FROM runtime_run WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_LOCK_RUN_OF = """
    SELECT FROM runtime_run WHERE id = (SELECT run_id FROM approvals_approval WHERE id = %s) FOR NO KEY UPDATE
"""
_LAST = "SELECT seq, hash FROM approvals_auditentry WHERE run_id = %s ORDER BY seq DESC LIMIT 1"
_COLUMNS = "run_id, seq, at, actor, token, act, subject, detail, hash, key_id"
# The last row's number and MAC as a JSON list, for the claim of the run `run`.
LAST_OF_CLAIM = Expression(
    sql="""
    (SELECT json_build_array(coalesce(max(seq), 0), coalesce(max(hash), '')) FROM (
        SELECT seq, hash FROM approvals_auditentry WHERE run_id = run.id ORDER BY seq DESC LIMIT 1) last)
""",
    parameters={},
)
# The head of a new chain, and of one that goes on. They read the rows, so that these are written first: an overtaken
# statement fails there and waits for no head. ON CONFLICT would also log a lock, or a confirmation of the new row.
_FIRST_HEAD = """
    INSERT INTO approvals_audithead (run_id, seq, mac, key_id)
    SELECT run_id, seq, %(head_mac)s, %(head_key)s FROM audited WHERE seq = %(head_seq)s
"""
_NEXT_HEAD = """
    UPDATE approvals_audithead AS head SET seq = audited.seq, mac = %(head_mac)s, key_id = %(head_key)s
    FROM audited WHERE head.run_id = audited.run_id AND audited.seq = %(head_seq)s
"""
_INSERT = f"INSERT INTO approvals_auditentry ({_COLUMNS})"
_VALUES = f"VALUES (%({_COLUMNS.replace(', ', ')s, %(')})s)"
# The same as parts of a statement that has the run's row as `run`. The rows are a JSON list.
_APPENDED = f"""
    {_INSERT}
    SELECT {_COLUMNS} FROM run, json_to_recordset(%(audited)s::json) AS a (
        run_id uuid, seq bigint, at timestamptz, actor text, token text, act text, subject text, detail text,
        hash text, key_id text)
    RETURNING run_id, seq
"""
_IMPORTED = """
    WITH RECURSIVE line (id) AS (
        SELECT %s UNION
        SELECT (detail::json ->> 'fork of')::uuid FROM approvals_auditentry JOIN line ON run_id = line.id
        WHERE act = 'started')
    SELECT EXISTS (SELECT FROM approvals_auditentry JOIN line ON run_id = line.id WHERE act = 'imported')
"""
_log = logging.getLogger(__name__)


def lock_runs(*runs: UUID) -> None:
    """Lock the rows of these runs until the transaction ends, in the order of their ids to avoid deadlocks."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [list(runs)])


def lock_run_of(approval_id: UUID) -> None:
    """Lock the row of a request's run until the transaction ends. Does nothing if there is no such request."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK_RUN_OF, [approval_id])


def append(
    *,
    run: UUID,
    actor: Actor | None,
    act: str,
    subject: str,
    detail: dict[str, str | None],
    at: datetime | None = None,
) -> None:
    """Add a row to the run's chain. `actor` None is the system; `at` defaults to now."""
    # Plain SQL: this runs at each decision, where the ORM would cost more than Postgres.
    row = build_next_entry(
        read_chain_end(run),
        run=run,
        actor=actor,
        act=act,
        subject=subject,
        detail=detail,
        at=at or clock.read_time(),
    )
    added = f"WITH audited AS ({_INSERT} {_VALUES} RETURNING run_id, seq)"
    head = _build_head_part(row, starts=row["seq"] == 1)
    parameters: dict[str, Any] = {**row, **head.parameters}
    with connection.cursor() as cursor:
        cursor.execute(f"{added} {head.sql}", parameters)


def name_subject(request: UUID) -> str:
    """Return the subject of rows about a request."""
    return f"request {request}"


def append_about(
    approval: Approval,
    *,
    actor: Actor | None,
    act: str,
    at: datetime | None = None,
    **detail: str | None,
) -> None:
    """Add a row about a request, with its digest, as `append` does."""
    append(
        run=approval.run_id,
        actor=actor,
        act=act,
        subject=name_subject(approval.id),
        detail={"digest": approval.approval_digest, **detail},
        at=at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The end of a run's chain: sequence number and MAC of its newest row, 0 and "" for an empty chain."""

    seq: int
    hash: str


def read_chain_end(run: UUID) -> Last:
    """Return the end of the run's chain."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [run])
        seq, mac = cursor.fetchone() or (0, GENESIS)
    return Last(seq=seq, hash=mac)


def build_next_entry(
    last: Last,
    *,
    run: UUID,
    actor: Actor | None,
    act: str,
    subject: str,
    detail: dict[str, str | None],
    at: datetime,
) -> Row:
    """Build the row after the last one, with its MAC, without writing it."""
    row = {
        "run_id": run,
        "seq": last.seq + 1,
        "at": at,
        "actor": None if actor is None else actor.person,
        "token": None if actor is None else actor.token,
        "act": str(act),  # an enum takes longer to encode as JSON
        "subject": subject,
        "detail": _DETAILS.encode(detail),
    }
    seal = signatures.seal(purposes.AUDIT, _compute_digest(row, last.hash), short=True)
    return {**row, "hash": seal.mac, "key_id": seal.key_id}


def build_append_parts(rows: Sequence[Row]) -> tuple[StatementPart, ...]:
    """Return the parts of an engine statement that add these rows to their run's chain, and replace its head."""
    return (
        StatementPart(
            name="audited",
            sql=_APPENDED,
            parameters={"audited": to_json(rows).decode()},
            overtaken="audit_order",
        ),
        _build_head_part(rows[-1], starts=rows[0]["seq"] == 1),
    )


def count(run: UUID, subject: str, *, besides: str) -> int:
    """Count the rows of the run about a subject, except those of one act."""
    rows = AuditEntry.objects.filter(run=run, subject=subject).exclude(act=besides)
    return rows.count()


def count_acts(run: UUID, subject: str, *, act: str) -> int:
    """Count the rows of the run about a subject that record this act."""
    return AuditEntry.objects.filter(run=run, subject=subject, act=act).count()


def find_last_act(run: UUID, acts: Sequence[str]) -> str | None:
    """Return which of these acts on the run was the last, None if there was none."""
    rows = AuditEntry.objects.filter(run=run, act__in=acts).order_by("-seq")
    return rows.values_list("act", flat=True).first()


def count_undone(approval: Approval) -> int:
    """Count the undone decisions on a request, from audit rows, which cannot be changed or deleted."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM approvals_auditentry WHERE run_id = %s AND act = %s AND subject = %s",
            [approval.run_id, UNDONE, name_subject(approval.id)],
        )
        (count,) = cursor.fetchone()
    return int(count)


def was_imported(run: UUID) -> bool:
    """Tell whether the run, or one that it is a fork of, came from another installation."""
    with connection.cursor() as cursor:
        cursor.execute(_IMPORTED, [run])
        (imported,) = cursor.fetchone()
    return bool(imported)


def verify(run: UUID) -> int:
    """Verify a run's chain and return its number of rows. Raises BrokenChain at the first bad row, KeyMissing."""
    # Both are read before the rows, so a row added meanwhile cannot be missing.
    approval_ids = list(Approval.objects.filter(run=run).values_list("id", "status"))
    head = AuditHead.objects.filter(run_id=run).first()
    previous, count, acts = GENESIS, 0, set()
    rows = AuditEntry.objects.filter(run=run).order_by("seq").values(*_COLUMNS.split(", "))
    for row in rows.iterator():
        count += 1
        if row["seq"] != count:
            raise BrokenChain(run, count, "is missing")
        seal = signatures.Seal(mac=row["hash"], key_id=row["key_id"])
        if not signatures.verify(purposes.AUDIT, seal, _compute_digest(row, previous), short=True):
            raise BrokenChain(run, count, "was changed")
        previous = row["hash"]
        acts.add((row["subject"], row["act"]))
        if head is not None and head.seq == count:
            seal = signatures.Seal(mac=head.mac, key_id=head.key_id)
            if not signatures.verify(purposes.AUDIT, seal, *_list_head_parts(row), short=True):
                raise BrokenChain(run, count, "is not the row that was counted as the last")
    # The chain has the rows that its head counts, and those added since it was read.
    if head is not None and not 0 < head.seq <= count:
        raise BrokenChain(run, count + 1, f"is missing: {head.seq} rows were written")
    counted = AuditHead.objects.filter(run_id=run).values_list("seq", flat=True).first()
    if count and counted is None:
        raise BrokenChain(run, count + 1, "may be missing: the number of rows was deleted")
    if counted is not None and counted < count:
        raise BrokenChain(run, counted + 1, "was not counted")
    for approval_id, status in approval_ids:
        act = "requested" if status == Approval.Status.PENDING else status
        if (name_subject(approval_id), act) not in acts:
            raise BrokenChain(run, count + 1, f"is missing: request {approval_id} is {status}")
    return count


def _build_head_part(row: Row, *, starts: bool) -> StatementPart:
    """Return the part that writes the head of a chain that ends with this row. `starts` says that the chain is new."""
    head = signatures.seal(purposes.AUDIT, *_list_head_parts(row), short=True)
    return StatementPart(
        name="counted",
        sql=_FIRST_HEAD if starts else _NEXT_HEAD,
        parameters={"head_seq": row["seq"], "head_mac": head.mac, "head_key": head.key_id},
    )


def _list_head_parts(row: Row) -> tuple[str, ...]:
    return "head", str(row["run_id"]), str(row["seq"]), row["hash"]


def _compute_digest(row: Row, previous: str) -> str:
    return hash_value(
        {
            "run": str(row["run_id"]),
            "seq": row["seq"],
            "at": row["at"].isoformat(),
            "actor": row["actor"],
            "token": row["token"],
            "act": row["act"],
            "subject": row["subject"],
            "detail": row["detail"],
            "previous": previous,
        }
    )


def log_change(actor: str | None, act: str) -> None:
    """Log an act of `actor` after the commit. None is the command line of the installation."""
    who = actor or "the command line"
    transaction.on_commit(lambda: _log.info("%s %s", who, act))


def log_refusal(person: str | None, subject: str, code: str) -> None:
    """Log a refused decision, with the person and the reason. The audit of the run has only the first ones."""
    _log.info("%s may not decide on %s: %s", person or "an unknown person", subject, code)
