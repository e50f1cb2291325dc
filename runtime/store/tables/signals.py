"""Stores signals: durable messages to a run, and the signal count by which a step detects new ones.

The transaction that writes a signal increases the run's signal count (`mailbox`). A step that consumes a signal, or
releases the run, requires the count to be unchanged since it read the signals. So the step either sees a signal, or
fails and reads again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.values.enums import CallPreview, Decision, Edit, Verdict
from runtime.errors import Tampered
from runtime.store.pool import Connection

GATE_DECIDED = "gate_decided"
CANCEL = "cancel"
PAUSE = "pause"
RESUME = "resume"
MESSAGE = "message"
INQUIRY = "question"
EVENT = "event"
EXTENSION = "extension"

# The part of the step statement that consumes signals.
CONSUME = """
    DELETE FROM runtime_signal WHERE id = ANY(%(signals)s) AND run_id = (SELECT id FROM run)
"""

# The part of the statement that settles a gate.
SEND = """
    INSERT INTO runtime_signal (run_id, kind, body, effective_at)
    SELECT run_id, %(kind)s, %(body)s, coalesce(%(effective_at)s::timestamptz, clock_timestamp()) FROM decided
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecidedSignal:
    """A gate was decided."""

    id: int
    gate: UUID
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSignal:
    """The run was cancelled."""

    id: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSignal:
    """The run was paused."""

    id: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSignal:
    """The run was resumed."""

    id: int
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSignal:
    """A message was sent to the run."""

    id: int
    by: str
    text: str
    reviewer: bool = False
    cuts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSignal:
    """An event arrived for which a call waited. `result` is the call's result, `by` the sender.

    For a call that an instance performs, `used_at` is when it used its approval, and with `failed` it reported a
    failure.
    """

    id: int
    frame: str
    call: str
    result: dict[str, Any]
    by: str = ""
    used_at: datetime | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InquirySignal:
    """A person asked the agent about the call that waits at this gate."""

    id: int
    gate: UUID
    inquiry: UUID
    by: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSignal:
    """A person extended the deadline of a gate. `document` is signed, as approvals keep it."""

    id: int
    document: str


Signal = (
    GateDecidedSignal
    | CancelSignal
    | PauseSignal
    | ResumeSignal
    | MessageSignal
    | InquirySignal
    | ExtensionSignal
    | EventSignal
)


def body_of(gate: UUID, decision: Decision) -> str:
    """Return the body of a decision's signal as stored."""
    body = {
        "gate": str(gate),
        "verdict": decision.verdict,
        "by": decision.by,
        "reason": decision.reason,
        "result": decision.result,
        "edit": None,
    }
    if (edit := decision.edit) is not None:
        preview = None if edit.preview is None else edit.preview.document
        body["edit"] = {"args": edit.args, "digest": edit.digest, "preview": preview}
    return json.dumps(body)


def withdraw(connection: Connection, run: UUID, gate: UUID | None = None) -> list[UUID]:
    """Delete the decisions that are not final yet, of one gate or of all. Returns their gates.

    The caller has locked the run's row.
    """
    rows = connection.execute(
        """
        SELECT id, kind, body FROM runtime_signal
        WHERE run_id = %s AND kind = %s AND effective_at > clock_timestamp() ORDER BY id
        """,
        (run, GATE_DECIDED),
    ).fetchall()
    decoded = [_decode(number, kind, body) for number, kind, body in rows]
    withdrawn = [
        signal
        for signal in decoded
        if isinstance(signal, GateDecidedSignal) and gate in (None, signal.gate)
    ]
    numbers = [signal.id for signal in withdrawn]
    connection.execute(
        "DELETE FROM runtime_signal WHERE run_id = %s AND id = ANY(%s)", (run, numbers)
    )
    return [signal.gate for signal in withdrawn]


def send_cancel(connection: Connection, *, run: UUID, by: str, reason: str) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    _send(connection, run, CANCEL, {"by": by, "reason": reason})


def send_pause(connection: Connection, *, run: UUID, by: str, reason: str) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    _send(connection, run, PAUSE, {"by": by, "reason": reason})


def send_resume(connection: Connection, *, run: UUID, by: str, reason: str) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    _send(connection, run, RESUME, {"by": by, "reason": reason})


def send_message(
    connection: Connection,
    *,
    run: UUID,
    by: str,
    text: str,
    reviewer: bool = False,
    cuts: bool = False,
) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    body: dict[str, object] = {"by": by, "text": text, "reviewer": reviewer, "cuts": cuts}
    _send(connection, run, MESSAGE, body)


def send_inquiry(
    connection: Connection, *, run: UUID, gate: UUID, inquiry: UUID, by: str, text: str
) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    body: dict[str, object] = {"gate": str(gate), "question": str(inquiry), "by": by, "text": text}
    _send(connection, run, INQUIRY, body)


def send_extension(connection: Connection, *, run: UUID, document: str) -> None:
    """Write the signal; the caller has increased the signal count in the same transaction."""
    _send(connection, run, EXTENSION, {"document": document})


def send_event(
    connection: Connection, *, run: UUID, frame: str, call: str, result: dict[str, Any], by: str
) -> None:
    """Write the signal; the caller has increased the signal count and deleted the wait in the same transaction."""
    _send(connection, run, EVENT, {"frame": frame, "call": call, "result": result, "by": by})


def send_use(connection: Connection, *, run: UUID, frame: str, call: str, at: datetime) -> None:
    """Write the signal of an instance that used the approval of a call; the caller has increased the signal count."""
    body: dict[str, object] = {"frame": frame, "call": call, "result": {}, "by": ""}
    _send(connection, run, EVENT, {**body, "used_at": at.isoformat()})


def send_outcome(
    connection: Connection,
    *,
    run: UUID,
    frame: str,
    call: str,
    result: dict[str, Any],
    failed: bool,
) -> None:
    """Write the signal of an instance that reports the outcome of a call. The caller has done as for `send_event`."""
    body: dict[str, object] = {"frame": frame, "call": call, "result": result, "by": ""}
    _send(connection, run, EVENT, {**body, "failed": failed})


def number_of(connection: Connection, run: UUID, kind: str) -> int:
    """Count the signals of a kind that no step has consumed. The caller has locked the run's row."""
    return connection.execute(
        "SELECT 1 FROM runtime_signal WHERE run_id = %s AND kind = %s", (run, kind)
    ).rowcount


def last_of(connection: Connection, run: UUID, *kinds: str) -> str | None:
    """Return the kind of the newest of these signals that no step has consumed, None if there is none."""
    row = connection.execute(
        "SELECT kind FROM runtime_signal WHERE run_id = %s AND kind = ANY(%s) ORDER BY id DESC LIMIT 1",
        (run, list(kinds)),
    ).fetchone()
    return None if row is None else row[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignals:
    """The signal count, the signals in effect, and the time at which the next one takes effect.

    `settling` lists the gates whose decision can still be undone. `origin` is the run's origin by its row.
    """

    count: int
    due: tuple[Signal, ...]
    next: datetime | None
    settling: frozenset[UUID] = frozenset()
    origin: tuple[str, ...] = ()


def read(connection: Connection, run: UUID) -> PendingSignals:
    """Read the signals of a run, in one statement so that they are consistent."""
    rows = connection.execute(
        """
        SELECT r.mailbox, ARRAY(SELECT jsonb_array_elements_text(r.origin)),
            s.id, s.kind, s.body, s.effective_at, s.effective_at <= clock_timestamp()
        FROM runtime_run r LEFT JOIN runtime_signal s ON s.run_id = r.id
        WHERE r.id = %s ORDER BY s.id
        """,
        (run,),
    ).fetchall()
    return pending(rows[0][0], (row[2:] for row in rows if row[2] is not None), rows[0][1])


def pending(count: int, rows: Iterable[Sequence[Any]], origin: Sequence[str]) -> PendingSignals:
    """Build the mail from rows with id, kind, body, the time of effect, and whether that has come.

    Raises Tampered.
    """
    decoded = [(_decode(number, kind, body), at, due) for number, kind, body, at, due in rows]
    later = [(signal, at) for signal, at, due in decoded if not due]
    return PendingSignals(
        count=count,
        due=tuple(signal for signal, _, due in decoded if due),
        next=min((at for _, at in later), default=None),
        settling=frozenset(one.gate for one, _ in later if isinstance(one, GateDecidedSignal)),
        origin=tuple(origin),
    )


def waiting(connection: Connection, run: UUID) -> tuple[Signal, ...]:
    """Return every signal that no step has consumed, due or not. Raises Tampered."""
    rows = connection.execute(
        "SELECT id, kind, body FROM runtime_signal WHERE run_id = %s ORDER BY id", (run,)
    )
    return tuple(_decode(number, kind, body) for number, kind, body in rows.fetchall())


def delete_cancels(connection: Connection, run: UUID) -> None:
    """Delete cancellations that came after the run had failed. The caller has locked its row."""
    connection.execute("DELETE FROM runtime_signal WHERE run_id = %s AND kind = %s", (run, CANCEL))


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the signals of a run that has ended: it consumes no more."""
    connection.execute("DELETE FROM runtime_signal WHERE run_id = %s", (run,))


def _send(connection: Connection, run: UUID, kind: str, body: dict[str, object]) -> None:
    connection.execute(
        """
        INSERT INTO runtime_signal (run_id, kind, body, effective_at)
        VALUES (%s, %s, %s, clock_timestamp())
        """,
        (run, kind, json.dumps(body)),
    )


def _decode(number: int, kind: str, body: str) -> Signal:
    """Decode a signal. Raises Tampered if none of our processes wrote it."""
    try:
        document = json.loads(body)
        if kind == CANCEL:
            return CancelSignal(id=number, by=document["by"], reason=document["reason"])
        if kind == PAUSE:
            return PauseSignal(id=number, by=document["by"], reason=document["reason"])
        if kind == RESUME:
            return ResumeSignal(id=number, by=document["by"], reason=document["reason"])
        if kind == MESSAGE:
            return MessageSignal(
                id=number,
                by=document["by"],
                text=document["text"],
                reviewer=document["reviewer"] is True,
                cuts=document["cuts"] is True,
            )
        if kind == INQUIRY:
            gate, inquiry = UUID(document["gate"]), UUID(document["question"])
            by, text = document["by"], document["text"]
            return InquirySignal(id=number, gate=gate, inquiry=inquiry, by=by, text=text)
        if kind == EXTENSION:
            return ExtensionSignal(id=number, document=str(document["document"]))
        if kind == EVENT:
            frame, call, result = document["frame"], document["call"], document["result"]
            used_at = document.get("used_at")
            return EventSignal(
                id=number,
                frame=frame,
                call=call,
                result=dict(result),
                by=document["by"],
                used_at=None if used_at is None else datetime.fromisoformat(used_at),
                failed=document.get("failed") is True,
            )
        return GateDecidedSignal(
            id=number,
            gate=UUID(document["gate"]),
            decision=Decision(
                verdict=Verdict(document["verdict"]),
                by=document["by"],
                reason=document["reason"],
                result=document["result"],
                edit=_edit(document["edit"]),
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Tampered(f"signal {number} cannot be read: {exc}") from exc


def _edit(stored: dict[str, Any] | None) -> Edit | None:
    if stored is None:
        return None
    preview = None
    if (document := stored["preview"]) is not None:
        preview = CallPreview(
            shown=document["shown"],
            material=str(document["material"]),
            missing=str(document["missing"]),
        )
    return Edit(args=dict(stored["args"]), digest=str(stored["digest"]), preview=preview)
