"""Reads the row of a run and replays its journal, for the verification of a stored run."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runtime.core.documents.blobs import hash_text
from runtime.core.run import events
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.reducer import step
from runtime.errors import NoSuchRun
from runtime.store import leases
from runtime.store.archived_runs import Archive
from runtime.store.pool import Connection
from runtime.store.tables import journal
from runtime.store.tables.pruning import PruneMark


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRunRow:
    """The run's row. `leased` says that a worker has an unexpired lease for it."""

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
    signal_version: int
    origin: list[str]
    unheard: int
    ended: bool
    erased: bool
    archived: bool
    leased: bool
    has_hold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedGate:
    """A gate as its row or the journal has it."""

    kind: str
    frame: str
    call: str
    path: tuple[str, ...]

    @staticmethod
    def of(pending: Pending) -> "OpenedGate":
        """Return an open gate of a run's state."""
        return OpenedGate(
            kind=pending.kind, frame=pending.frame, call=pending.call, path=pending.path
        )


@dataclass(slots=True, kw_only=True)
class Replayed:
    """The state after a replay, the state at `base`, and every gate that the remaining journal opened.

    `prompts` are the digests of the texts that it pins, `copied` those of frames that were there before it.
    Entries up to `mark` were removed. `texts` are the remaining ones up to `base`, by position.
    """

    mark: PruneMark
    now: Continuation
    base: Continuation
    texts: dict[int, str] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    imported: list[tuple[events.Imported, tuple[str, ...]]] = field(default_factory=list)
    gates: dict[UUID, OpenedGate] = field(default_factory=dict)
    decided: set[UUID] = field(default_factory=set)
    closed: set[UUID] = field(default_factory=set)
    allowed: dict[UUID, events.AllowanceUse] = field(default_factory=dict)
    prompts: dict[tuple[str, int], str] = field(default_factory=dict)
    copied: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, event: events.Event) -> None:
        """Record the gates and the import in an event."""
        match event:
            case events.GateOpened():
                for pending in self.now.pending:  # no row, if its entry decided or closed it too
                    if pending.gate == event.gate:
                        self.gates[event.gate] = OpenedGate.of(pending)
            case events.GateDecided(allowance=events.AllowanceUse() as use):
                self.allowed[event.gate] = use
            case events.GateDecided():
                self.decided.add(event.gate)
            case (
                events.FrameOpened(pinned=events.PinnedPrompt() as pin)
                | events.AgentChanged(pinned=events.PinnedPrompt() as pin)
            ):
                self.prompts[pin.name, pin.number] = pin.digest
            case events.Forked():
                self.copied = _collect_pinned_prompts(self.now)
            case events.GateClosed():
                self.closed.add(event.gate)
            case events.OutcomeArrived() if event.gate is not None:
                self.closed.add(event.gate)
            case events.Imported():
                self.imported.append((event, tuple(self.digests)))
                self.allowed.clear()
                self.prompts.clear()
                self.gates.clear()  # gates of the other installation have no rows here
            case _:
                return


def read_row(connection: Connection, run: UUID) -> VerifiedRunRow:
    """Read the run's row. Raises NoSuchRun."""
    row = connection.execute(
        f"""
        SELECT id, agent, requester, input, output, reason, status, position, head, base, due_at,
            owner, mailbox, origin, unheard, ended_at IS NOT NULL, removed_at IS NOT NULL,
            archived_at IS NOT NULL, {leases.LIVE}, legal_hold IS NOT NULL
        FROM runtime_run WHERE id = %s
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise NoSuchRun
    return VerifiedRunRow(**dict(zip(VerifiedRunRow.__slots__, row, strict=True)))


def replay(
    connection: Connection, row: VerifiedRunRow, archived: Archive | None = None
) -> Replayed:
    """Replay the journal of a run, or the one in its file. Raises Tampered, KeyMissing, CoreError."""
    history = archived.history() if archived else journal.read_history(connection, row.id)
    replayed = Replayed(mark=history.mark, now=history.start, base=history.start)
    replayed.copied = _collect_pinned_prompts(history.start)
    replayed.gates = {pending.gate: OpenedGate.of(pending) for pending in history.start.pending}
    for sealed, entry in history.entries:
        replayed.now = step(replayed.now, entry.events, head=sealed.seal.mac, at=entry.at)
        for event in entry.events:
            replayed.add(event)
        replayed.digests.append(hash_text(sealed.body))
        if sealed.position <= row.base:
            replayed.texts[sealed.position] = sealed.body
        if sealed.position == row.base:
            replayed.base = replayed.now
    return replayed


def _collect_pinned_prompts(now: Continuation) -> dict[tuple[str, int], str]:
    pins = [frame.pinned for frame in now.frames.values() if frame.pinned is not None]
    return {(pin.name, pin.number): pin.digest for pin in pins}
