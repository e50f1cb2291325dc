"""What is stored of a run, held against its journal: every MAC, the fold, and all that is copied from it.

The journal is the truth; the run's row, its continuation, its gates and its mailbox repeat parts of it
so that no reader has to fold. Everything is read in one snapshot, so a run may be at work meanwhile. The audit is
verified by whoever keeps it, and rows that come meanwhile do not disturb that.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.continuation import Continuation, Phase, RunStatus, status_of
from runtime.core.documents import export_file
from runtime.core.documents.blobs import digest_of, referred
from runtime.core.errors import CoreError, NewerSchema
from runtime.core.events import Event, GateClosed, GateDecided, GateOpened, Imported, OutcomeArrived
from runtime.core.machine.replay import initial, step
from runtime.errors import KeyMissing, LedgerBroken, NoSuchRun, Tampered
from runtime.keyring import purposes, signatures
from runtime.ports import wiring
from runtime.store import leases, pool
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    journal,
    late_outcomes,
    pruning,
    signals,
    spent,
    waits,
)
from runtime.store.tables.signals import EventSignal, MessageSignal

UNREADABLE = (Tampered, KeyMissing, CoreError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as the journal says. `subject` is what it was found in."""

    subject: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A run as it was looked at; without findings it is sound."""

    run: UUID
    status: str
    position: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        return not self.findings


def verify(run: UUID) -> Verification:
    """Look at everything that is stored of a run. Raises NoSuchRun."""
    with pool.pooled() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = _row(connection, run)
        found = tuple(_findings(connection, row))
    return Verification(
        run=run,
        status=row.status,
        position=row.position,
        findings=(*found, *_unspent(run), *_audit(run)),
    )


def runs(*, live: bool) -> list[UUID]:
    """The runs there are, oldest first; with `live` only those that are not over."""
    condition = "WHERE ended_at IS NULL" if live else ""
    with pool.pooled() as connection:
        rows = connection.execute(f"SELECT id FROM runtime_run {condition} ORDER BY id")
        return [row[0] for row in rows.fetchall()]


# What is read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The run's row. `leased` says that some worker's lease lasts."""

    id: UUID
    agent: str
    requester: str
    input: str
    output: str | None
    reason: str | None
    status: str
    position: int
    head: str
    base: int
    due_at: datetime | None
    owner: UUID | None
    mailbox: int
    origin: list[str]
    unheard: int
    ended: bool
    removed: bool
    leased: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """A gate's row, or what the journal says of one."""

    kind: str
    frame: str
    call: str
    path: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Told:
    """What a journal tells: the state it folds to, the one at `base`, and every gate it opened.

    `texts` are the entries up to `base`, by position.
    """

    now: Continuation
    base: Continuation
    texts: dict[int, str] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    imported: list[tuple[Imported, tuple[str, ...]]] = field(default_factory=list)
    gates: dict[UUID, _Gate] = field(default_factory=dict)
    decided: set[UUID] = field(default_factory=set)
    closed: set[UUID] = field(default_factory=set)

    def take(self, event: Event) -> None:
        match event:
            case GateOpened():
                self.gates[event.gate] = _Gate(
                    kind=event.kind,
                    frame=event.frame,
                    call=event.call,
                    path=next((p.path for p in self.now.pending if p.gate == event.gate), ()),
                )
            case GateDecided():
                self.decided.add(event.gate)
            case GateClosed():
                self.closed.add(event.gate)
            case OutcomeArrived() if event.gate is not None:
                self.closed.add(event.gate)
            case Imported():
                self.imported.append((event, tuple(self.digests)))
                self.gates.clear()  # those of the other installation have no rows here
            case _:
                return


def _row(connection: Connection, run: UUID) -> _Row:
    found = connection.execute(
        f"""
        SELECT id, agent, requester, input, output, reason, status, position, head, base, due_at,
            owner, mailbox, origin, unheard, ended_at IS NOT NULL, removed_at IS NOT NULL,
            {leases.LIVE}
        FROM runtime_run WHERE id = %s
        """,
        (run,),
    ).fetchone()
    if found is None:
        raise NoSuchRun
    return _Row(**dict(zip(_Row.__slots__, found, strict=True)))


def _unspent(run: UUID) -> Iterator[Finding]:
    try:
        with pool.pooled() as connection:
            lost = spent.missing(connection, run)
    except (KeyMissing, LedgerBroken, OSError) as exc:
        yield Finding(subject="ledger", problem=str(exc))
        return
    for line in lost:
        yield Finding(subject="ledger", problem=f"the database does not know of {line}")


def _audit(run: UUID) -> Iterator[Finding]:
    try:
        problem = wiring.gatekeeper().problem_of(run)
    except KeyMissing as exc:
        problem = str(exc)
    if problem is not None:
        yield Finding(subject="audit", problem=problem)


def _told(connection: Connection, row: _Row) -> _Told:
    """Raises what reading a journal raises."""
    told = _Told(now=initial(row.id), base=initial(row.id))
    for sealed, entry in journal.history(connection, row.id):
        told.now = step(told.now, entry.events, head=sealed.seal.mac, at=entry.at)
        for event in entry.events:
            told.take(event)
        told.digests.append(digest_of(sealed.body))
        if sealed.position <= row.base:
            told.texts[sealed.position] = sealed.body
        if sealed.position == row.base:
            told.base = told.now
    return told


# What is held against what


def _findings(connection: Connection, row: _Row) -> Iterator[Finding]:
    if row.removed:
        yield from _removed_findings(connection, row)
        return
    try:
        told = _told(connection, row)
    except NewerSchema as exc:
        yield Finding(subject="journal", problem=f"left alone: {exc}")
    except UNREADABLE as exc:
        yield Finding(subject="journal", problem=str(exc))
    else:
        yield from _row_findings(row, told.now)
        yield from _continuation_findings(connection, row, told)
        yield from _origin_findings(connection, row, told.now)
        yield from _import_findings(told)
        yield from _gate_findings(connection, row, told)
        yield from _content_findings(connection, told.now)
        yield from _wait_findings(connection, row, told)
        yield from _late_findings(connection, row.id)
    yield from _mailbox_findings(connection, row)
    yield from _stuck(connection, row)


def _late_findings(connection: Connection, run: UUID) -> Iterator[Finding]:
    try:
        forged = late_outcomes.of(connection, run).forged
    except KeyMissing as exc:
        forged = (str(exc),)
    for problem in forged:
        yield Finding(subject="late outcome", problem=problem)


def _removed_findings(connection: Connection, row: _Row) -> Iterator[Finding]:
    """Of a run whose payloads are gone its mark says where its journal ended, and nothing is left of it."""
    try:
        mark = pruning.read(connection, row.id)
        journal.verify(connection, row.id, position=row.position, head=row.head)
    except (Tampered, KeyMissing) as exc:
        yield Finding(subject="journal", problem=str(exc))
        return
    if (mark.position, row.ended) != (row.position, True):
        yield Finding(subject="journal", problem="it is not removed as far as the row says")
    if (row.input, row.output, row.reason) != ("null", None, None):
        yield Finding(subject="row", problem="its payloads are said to be removed, but are there")


def _row_findings(row: _Row, now: Continuation) -> Iterator[Finding]:
    expected: dict[str, tuple[Any, Any]] = {
        "position": (row.position, now.position),
        "head": (row.head, now.head),
        "agent": (row.agent, now.agent),
        "requester": (row.requester, now.requester),
        "input": (_json(row.input), now.input),
        "output": (row.output, json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None),
        "unheard": (row.unheard, len(now.unheard)),
        "ended": (row.ended, now.ended),
    }
    if row.status != RunStatus.QUARANTINED:
        ended_badly = now.phase in (Phase.FAILED, Phase.CANCELLED)
        expected["reason"] = (row.reason, now.outcome if ended_badly else None)
    for name, (stored, told) in expected.items():
        if stored != told:
            yield Finding(subject=name, problem=f"the row has {stored!r}, the journal {told!r}")
    if row.status not in _statuses(row, now):
        yield Finding(
            subject="status", problem=f"the row says {row.status}, the journal {_said(now)}"
        )


def _said(now: Continuation) -> str:
    return status_of(now, held=False)


def _statuses(row: _Row, now: Continuation) -> set[str]:
    """What the row may say: `running` also after a worker died or let go of what it could not read."""
    if row.status == RunStatus.QUARANTINED:
        return {row.status}
    at_work = not now.ended and row.due_at is not None
    return {_said(now), RunStatus.RUNNING} if at_work else {_said(now)}


def _continuation_findings(connection: Connection, row: _Row, told: _Told) -> Iterator[Finding]:
    subject = "continuation"
    if row.ended:
        if continuations.exists(connection, row.id):
            yield Finding(subject=subject, problem="the run is over, but its continuation is there")
        return
    try:
        stored = continuations.load(connection, row.id, row.base, told.texts.__getitem__)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        yield Finding(subject=subject, problem=str(exc))
        return
    if stored != told.base:
        yield Finding(
            subject=subject, problem=f"it is not what the journal folds to at entry {row.base}"
        )


def _content_findings(connection: Connection, now: Continuation) -> Iterator[Finding]:
    """What a run that goes on will be given again is there, and is what its hash says."""
    for digest in sorted(referred(now)):
        try:
            blobs.fetch(connection, digest)
        except Tampered as exc:
            yield Finding(subject="content", problem=str(exc))


def _wait_findings(connection: Connection, row: _Row, told: _Told) -> Iterator[Finding]:
    """Every wait for an event has its row, until an event has taken it away and left a signal."""
    stored = waits.open_of(connection, row.id)
    came = {(s.frame, s.call) for s in _signals(connection, row.id) if isinstance(s, EventSignal)}
    awaited = _awaited(told.now)
    for frame, call in sorted(stored - (awaited - came)):
        yield Finding(subject=f"wait {frame}/{call}", problem="the journal does not know it")
    for frame, call in sorted(awaited - came - stored):
        yield Finding(subject=f"wait {frame}/{call}", problem="it began, but there is no row")


def _awaited(now: Continuation) -> set[tuple[str, str]]:
    if now.phase is not Phase.STARTED:
        return set()
    return {
        (wait.frame, str(wait.call))
        for wait in now.all_waiting()
        if (terms := now.call(wait.frame, str(wait.call)).terms) and terms.waits == "event"
    }


def _origin_findings(connection: Connection, row: _Row, now: Continuation) -> Iterator[Finding]:
    """Compare the row's origin with the journal's, plus the senders of signals that no step has received.

    An ended run drops its remaining signals, so its row may name their senders too. A row of the previous version lacks
    its requester, and some of the others.
    """
    told = set(now.origin)
    to_come = {
        signal.by
        for signal in _signals(connection, row.id)
        if isinstance(signal, MessageSignal | EventSignal)
    }
    for person in sorted(set(row.origin) - told - to_come if not row.ended else ()):
        yield Finding(subject="origin", problem=f"the row names {person!r}, the journal does not")
    for person in sorted(told - set(row.origin)):
        if row.requester in row.origin:
            yield Finding(
                subject="origin", problem=f"the journal names {person!r}, the row does not"
            )


def _import_findings(told: _Told) -> Iterator[Finding]:
    """What was taken over is still what the other installation signed."""
    for event, digests in told.imported:
        manifest = export_file.entries_signed(event.manifest)
        public = bytes.fromhex(event.key)
        signed = signatures.signed_by(purposes.EXPORTS, public, event.signature, event.manifest)
        if not signed or manifest != export_file.digest_of_digests(digests):
            yield Finding(subject="origin", problem="it is not what its exporter signed")


def _gate_findings(connection: Connection, row: _Row, told: _Told) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT id, state, kind, frame, call, path FROM runtime_gate WHERE run_id = %s ORDER BY id",
        (row.id,),
    ).fetchall()
    sent = _signals(connection, row.id)
    for gate, state, kind, frame, call, path in rows:
        subject = f"gate {gate}"
        opened = told.gates.get(gate)
        if opened is None:
            yield Finding(subject=subject, problem="the journal does not know it")
        elif opened != _Gate(
            kind=kind,
            frame=frame,
            call=call,
            path=tuple(path) if opened.path else (),  # it was over in the entry that opened it
        ):
            yield Finding(subject=subject, problem="it stands elsewhere than the journal says")
        elif state not in (allowed := _gate_states(gate, told, sent)):
            said = " or ".join(sorted(allowed))
            yield Finding(subject=subject, problem=f"it is {state}, the journal says {said}")
    for gate in told.gates.keys() - {found[0] for found in rows}:
        yield Finding(subject=f"gate {gate}", problem="the journal opened it, but there is no row")


def _gate_states(gate: UUID, told: _Told, sent: list[signals.Signal]) -> set[str]:
    if gate in told.decided:
        return {"effective"}
    if gate in told.closed or told.now.ended:
        return {"closed"}
    decided = any(isinstance(s, signals.GateDecidedSignal) and s.gate == gate for s in sent)
    cancelled = any(isinstance(s, signals.CancelSignal) for s in sent)
    if decided:  # taken up by the step that takes its signal
        return {"decided"}
    return {"open", "closed"} if cancelled else {"open"}


def _signals(connection: Connection, run: UUID) -> list[signals.Signal]:
    try:
        return list(signals.waiting(connection, run))
    except Tampered:
        return []  # told of by the mailbox


def _mailbox_findings(connection: Connection, row: _Row) -> Iterator[Finding]:
    try:
        waiting = len(signals.waiting(connection, row.id))
    except Tampered as exc:
        yield Finding(subject="mailbox", problem=str(exc))
        return
    if waiting > row.mailbox:
        yield Finding(
            subject="mailbox",
            problem=f"it was raised {row.mailbox} times, but {waiting} signals wait",
        )
    live = not row.ended and row.status != RunStatus.QUARANTINED
    if waiting and live and row.due_at is None:
        yield Finding(subject="mailbox", problem=f"{waiting} signals wait and nothing is due")


def _stuck(connection: Connection, row: _Row) -> Iterator[Finding]:
    """A live run without a live lease has an open gate or something due, or rests on purpose."""
    if row.ended or row.leased or row.due_at is not None or row.status in RESTING:
        return
    gate = connection.execute(
        "SELECT 1 FROM runtime_gate WHERE run_id = %s AND state = 'open' LIMIT 1", (row.id,)
    ).fetchone()
    if gate is None:
        yield Finding(subject="stuck", problem="nothing is due, and no gate waits for anybody")


# The run rests until somebody has it go on, and nothing needs to be due.
RESTING = frozenset({RunStatus.PAUSED, RunStatus.QUARANTINED})


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
