"""Verifies a stored run: every MAC, the replay of its journal, and every copy of its content.

The journal is the truth. The row, the continuation, the gates and the signals of a run repeat parts of it, so that
readers need not replay it. They are compared with the replayed journal.

Postgres serves all reads but those of ledger and audit from one snapshot, so a worker may advance the run meanwhile.
Approvals verify the audit; rows that are added meanwhile do not disturb that.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.control.verified_journal import OpenedGate, Replayed, VerifiedRunRow, read_row, replay
from runtime.core.documents import export_file
from runtime.core.documents.blobs import collect_blob_refs
from runtime.core.run.continuation import (
    Continuation,
    Phase,
    RunStatus,
    derive_status,
    list_steering_people,
)
from runtime.core.values.errors import CoreError, NewerSchema
from runtime.errors import KeyMissing, LedgerBroken, ObjectStoreDown, Tampered
from runtime.keyring import purposes, signatures
from runtime.ports import wiring
from runtime.store import archived_entries, archived_runs, pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    journal,
    late_outcomes,
    pruning,
    signals,
    used_approvals,
    waits,
)

UNREADABLE = (Tampered, KeyMissing, CoreError)
# Runs that wait for a user action, without a gate and without a due time.
RESTING = frozenset({RunStatus.PAUSED, RunStatus.QUARANTINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference between stored data and the journal. `subject` names the data that differs."""

    subject: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The findings of one verified run; a run without findings is consistent.

    Entries of a run that goes on were removed up to `removed`, at `removed_at`; `removed` is 0 for a whole journal.
    """

    run: UUID
    status: str
    position: int
    findings: tuple[Finding, ...]
    removed: int = 0
    removed_at: datetime | None = None

    @property
    def is_consistent(self) -> bool:
        """Return whether there are no findings."""
        return not self.findings


def verify(run: UUID) -> Verification:
    """Verify everything that is stored of a run. Raises NoSuchRun."""
    with pool.pooled() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = read_row(connection, run)
        differences = tuple(_compare(connection, row))
        mark = pruning.UNPRUNED
        if not row.erased:
            # Where the journal begins, also in a run's file; the first entry if that does not verify.
            with suppress(Tampered, KeyMissing, ObjectStoreDown):
                archived_run = (
                    archived_runs.read_for_page(connection, row.id) if row.archived else None
                )
                mark = archived_run.mark if archived_run else pruning.read(connection, row.id)
    return Verification(
        run=run,
        status=row.status,
        position=row.position,
        findings=(*differences, *_verify_ledger(run), *_verify_audit(row)),
        removed=mark.position,
        removed_at=mark.at,
    )


def list_runs(*, live: bool) -> list[UUID]:
    """List the runs, oldest first; with `live` only those that have not ended."""
    condition = "WHERE ended_at IS NULL" if live else ""
    with pool.pooled() as connection:
        rows = connection.execute(f"SELECT id FROM runtime_run {condition} ORDER BY id")
        return [row[0] for row in rows.fetchall()]


def _verify_ledger(run: UUID) -> Iterator[Finding]:
    """Find used approvals that the ledger has and the database lacks."""
    try:
        with pool.pooled() as connection:
            lost = used_approvals.list_missing_attempts(connection, run)
    except (KeyMissing, LedgerBroken, OSError) as exc:
        yield Finding(subject="ledger", problem=str(exc))
        return
    for line in lost:
        yield Finding(subject="ledger", problem=f"the database does not know of {line}")


def _verify_audit(row: VerifiedRunRow) -> Iterator[Finding]:
    """Find audit rows that do not verify, and a legal hold that was lifted without one."""
    try:
        problem = wiring.resolve_approvals().find_audit_problem(row.id)
        if not row.has_hold:
            runs.require_no_hold(row.id)
    except (KeyMissing, Tampered) as exc:
        problem = str(exc)
    if problem is not None:
        yield Finding(subject="audit", problem=problem)


def _compare(connection: Connection, row: VerifiedRunRow) -> Iterator[Finding]:
    """Compare the row, the continuation, the gates, the signals and the blobs with the replayed journal."""
    if row.erased:
        yield from _verify_erased_run(connection, row)
        return
    try:
        archived = _archive(connection, row)
        if archived is not None:
            payloads = {name: archived.row[name] for name in ("input", "output", "reason")}
            row = replace(row, **payloads)
        replayed = replay(connection, row, archived)
    except ObjectStoreDown as exc:
        yield Finding(subject="archive", problem=str(exc))
        return
    except NewerSchema as exc:
        yield Finding(subject="journal", problem=f"left alone: {exc}")
    except UNREADABLE as exc:
        yield Finding(subject="journal", problem=str(exc))
    else:
        yield from _verify_row(row, replayed.now)
        yield from _verify_continuation(connection, row, replayed)
        yield from _verify_origin(connection, row, replayed.now)
        yield from _verify_import(replayed)
        yield from _verify_gates(connection, row, replayed)
        yield from _verify_allowances(replayed)
        yield from _verify_prompts(row.id, replayed)
        if archived is None:  # the file has its contents, which were compared with their hashes
            yield from _verify_blobs(connection, replayed.now)
        yield from _verify_removed_entries(connection, row.id, replayed, archived)
        yield from _verify_waits(connection, row, replayed)
        yield from _verify_late_outcomes(connection, row.id)
    yield from _verify_signals(connection, row)
    yield from _detect_stuck_run(connection, row)


def _archive(connection: Connection, row: VerifiedRunRow) -> archived_runs.Archive | None:
    """Read the file of an archived run. Raises Tampered, KeyMissing."""
    if not row.archived:
        return None
    archived_run = archived_runs.read(connection, row.id)
    if archived_run is None:
        raise Tampered("it says that it is archived, but has no file")
    if (row.input, row.output, row.reason) != ("null", None, None):
        raise Tampered("it says that it is archived, but its row has payloads")
    return archived_run


def _verify_removed_entries(
    connection: Connection, run: UUID, replayed: Replayed, archived: archived_runs.Archive | None
) -> Iterator[Finding]:
    """Verify the archived entries before the remaining ones."""
    try:
        removed = archived.removed if archived else None
        archived_entries.check(connection, run, replayed.mark, removed)
    except (Tampered, KeyMissing, ObjectStoreDown) as exc:
        yield Finding(subject="archive", problem=str(exc))


def _verify_late_outcomes(connection: Connection, run: UUID) -> Iterator[Finding]:
    try:
        forged = late_outcomes.read_for_run(connection, run).forged
    except KeyMissing as exc:
        forged = (str(exc),)
    for problem in forged:
        yield Finding(subject="late outcome", problem=problem)


def _verify_erased_run(connection: Connection, row: VerifiedRunRow) -> Iterator[Finding]:
    """Verify a run with erased payloads: its prune mark ends where the row does, and the row has no payload."""
    try:
        mark = pruning.read(connection, row.id)
        journal.verify(connection, row.id, position=row.position, head=row.head)
    except (Tampered, KeyMissing) as exc:
        yield Finding(subject="journal", problem=str(exc))
        return
    if (mark.position, row.ended) != (row.position, True):
        yield Finding(subject="journal", problem="its prune mark does not end where the row does")
    if (row.input, row.output, row.reason) != ("null", None, None):
        yield Finding(subject="row", problem="it says that its payloads are erased, but has them")


def _verify_row(row: VerifiedRunRow, now: Continuation) -> Iterator[Finding]:
    expected: dict[str, tuple[Any, Any]] = {
        "position": (row.position, now.position),
        "head": (row.head, now.head),
        "agent": (row.agent, now.agent),
        "requester": (row.requester, now.requester),
        "input": (_parse_json(row.input), now.input),
        "output": (row.output, json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None),
        "unheard": (row.unheard, len(now.unheard)),
        "ended": (row.ended, now.ended),
    }
    if row.status != RunStatus.QUARANTINED:
        ended_badly = now.phase in (Phase.FAILED, Phase.CANCELLED)
        expected["reason"] = (row.reason, now.outcome if ended_badly else None)
    for name, (stored, replayed) in expected.items():
        if stored != replayed:
            yield Finding(subject=name, problem=f"the row has {stored!r}, the journal {replayed!r}")
    status = derive_status(now, leased=False)
    allowed = {status, RunStatus.QUARANTINED}
    if not now.ended and row.due_at is not None:
        allowed.add(RunStatus.RUNNING)  # also after a worker died or could not read the run
    if row.status not in allowed:
        problem = f"the row says {row.status}, the journal {status}"
        yield Finding(subject="status", problem=problem)


def _verify_continuation(
    connection: Connection, row: VerifiedRunRow, replayed: Replayed
) -> Iterator[Finding]:
    subject = "continuation"
    if row.ended:
        if continuations.has_continuation(connection, row.id):
            yield Finding(subject=subject, problem="the run has ended, but its continuation exists")
        return
    try:
        stored = continuations.load(connection, row.id, row.base, replayed.texts.__getitem__)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        yield Finding(subject=subject, problem=str(exc))
        return
    if stored != replayed.base:
        yield Finding(
            subject=subject, problem=f"it differs from the replayed state at entry {row.base}"
        )


def _verify_blobs(connection: Connection, now: Continuation) -> Iterator[Finding]:
    """Verify the blobs that the state refers to: each exists and has its digest."""
    for digest in sorted(collect_blob_refs(now)):
        try:
            blobs.fetch(connection, digest)
        except (Tampered, ObjectStoreDown) as exc:
            yield Finding(subject="content", problem=str(exc))


def _verify_waits(
    connection: Connection, row: VerifiedRunRow, replayed: Replayed
) -> Iterator[Finding]:
    """Compare the calls that wait for an event with their rows. A delivered event replaces the row with a signal."""
    stored = waits.list_open_waits(connection, row.id)
    came = {
        (signal.frame, signal.call)
        for signal in _list_signals(connection, row.id)
        if isinstance(signal, signals.EventSignal) and signal.used_at is None
    }
    awaited = {
        (wait.frame, str(wait.call))
        for wait in replayed.now.list_all_waiting()
        if replayed.now.phase is Phase.STARTED
        and (terms := replayed.now.call(wait.frame, str(wait.call)).terms)
        and terms.waits != "time"
    }
    for frame, call in sorted(stored - (awaited - came)):
        yield Finding(subject=f"wait {frame}/{call}", problem="it is not in the journal")
    for frame, call in sorted(awaited - came - stored):
        yield Finding(
            subject=f"wait {frame}/{call}", problem="the journal has it, but it has no row"
        )


def _verify_origin(
    connection: Connection, row: VerifiedRunRow, now: Continuation
) -> Iterator[Finding]:
    """Compare the row's origin with the journal's, plus the senders of signals that no step has received.

    An ended run drops its remaining signals, so its row may name their senders too.
    """
    replayed = set(list_steering_people(now))
    to_come = {
        signal.by
        for signal in _list_signals(connection, row.id)
        if isinstance(signal, signals.MessageSignal | signals.EventSignal)
    }
    for person in sorted(set(row.origin) - replayed - to_come if not row.ended else ()):
        yield Finding(subject="origin", problem=f"the row names {person!r}, the journal does not")
    for person in sorted(replayed - set(row.origin)):
        yield Finding(subject="origin", problem=f"the journal names {person!r}, the row does not")


def _verify_import(replayed: Replayed) -> Iterator[Finding]:
    """Verify that the other installation signed the import, and its entries if all of them are left."""
    for event, digests in replayed.imported:
        removed, entries = export_file.read_signed_entries(event.manifest)
        are_left = replayed.mark.position <= removed
        public = bytes.fromhex(event.key)
        signed = signatures.is_signed_by(purposes.EXPORTS, public, event.signature, event.manifest)
        if not signed or (are_left and entries != export_file.hash_digests(digests)):
            yield Finding(
                subject="origin",
                problem="the imported entries are not those that the exporter signed",
            )


def _verify_gates(
    connection: Connection, row: VerifiedRunRow, replayed: Replayed
) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT id, state, kind, frame, call, path FROM runtime_gate WHERE run_id = %s ORDER BY id",
        (row.id,),
    ).fetchall()
    sent = _list_signals(connection, row.id)
    for gate, state, kind, frame, call, path in rows:
        subject = f"gate {gate}"
        journal_gate = replayed.gates.get(gate)
        if journal_gate is None and replayed.mark.position and state in ("effective", "closed"):
            continue  # the entries that opened and settled it were removed
        if journal_gate is None:
            yield Finding(subject=subject, problem="it is not in the journal")
        elif journal_gate != OpenedGate(kind=kind, frame=frame, call=call, path=tuple(path)):
            yield Finding(
                subject=subject, problem="its kind, frame, call or path differs from the journal"
            )
        elif state not in (allowed := _derive_gate_states(gate, replayed, sent)):
            expected = " or ".join(sorted(allowed))
            yield Finding(subject=subject, problem=f"it is {state}, the journal says {expected}")
    for gate in replayed.gates.keys() - {gate_row[0] for gate_row in rows}:
        yield Finding(subject=f"gate {gate}", problem="the journal opened it, but there is no row")


def _verify_allowances(replayed: Replayed) -> Iterator[Finding]:
    """Verify each use of an allowance: two people signed the allowance, and the use is stored."""
    for gate, use in replayed.allowed.items():
        try:
            problem = wiring.resolve_approvals().find_use_problem(gate, use)
        except KeyMissing as exc:
            problem = str(exc)
        if problem is not None:
            yield Finding(subject=f"allowance {use.id}, use {use.number}", problem=problem)


def _verify_prompts(run: UUID, replayed: Replayed) -> Iterator[Finding]:
    """Verify each version of a prompt that the run used: it is stored, signed, and has the text of the journal.

    Versions that an imported run, or a fork of one, brought along are those of another installation.
    """
    copied = replayed.copied
    if copied and wiring.resolve_approvals().was_imported(run):
        copied = {}
    for (name, number), digest in (copied | replayed.prompts).items():
        try:
            problem = wiring.resolve_approvals().find_prompt_problem(name, number, digest)
        except KeyMissing as exc:
            problem = str(exc)
        if problem is not None:
            yield Finding(subject=f"prompt {name}, version {number}", problem=problem)


def _derive_gate_states(gate: UUID, replayed: Replayed, sent: list[signals.Signal]) -> set[str]:
    if gate in replayed.decided:
        return {"effective"}
    if gate in replayed.closed or replayed.now.ended:
        return {"closed"}
    decided = any(isinstance(s, signals.GateDecidedSignal) and s.gate == gate for s in sent)
    cancelled = any(isinstance(s, signals.CancelSignal) for s in sent)
    if decided:  # the step that receives the signal makes it effective
        return {"decided"}
    return {"open", "closed"} if cancelled else {"open"}


def _list_signals(connection: Connection, run: UUID) -> list[signals.Signal]:
    try:
        return list(signals.list_waiting_signals(connection, run))
    except Tampered:
        return []  # `_verify_signals` reports it


def _verify_signals(connection: Connection, row: VerifiedRunRow) -> Iterator[Finding]:
    try:
        waiting = len(signals.list_waiting_signals(connection, row.id))
    except Tampered as exc:
        yield Finding(subject="mailbox", problem=str(exc))
        return
    if waiting > row.signal_version:
        yield Finding(
            subject="mailbox",
            problem=f"the row counted {row.signal_version} signals, but {waiting} are waiting",
        )
    live = not row.ended and row.status != RunStatus.QUARANTINED
    if waiting and live and row.due_at is None:
        yield Finding(subject="mailbox", problem=f"{waiting} signals wait, but the run is not due")


def _detect_stuck_run(connection: Connection, row: VerifiedRunRow) -> Iterator[Finding]:
    """Find a stuck run: live, without lease, due time or open gate, and neither paused nor quarantined."""
    if row.ended or row.leased or row.due_at is not None or row.status in RESTING:
        return
    gate = connection.execute(
        "SELECT 1 FROM runtime_gate WHERE run_id = %s AND state = 'open' LIMIT 1", (row.id,)
    ).fetchone()
    if gate is None:
        yield Finding(subject="stuck", problem="the run has no due time and no open gate")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
