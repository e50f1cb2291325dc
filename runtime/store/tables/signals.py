"""Stores signals: durable messages to a run, and the signal count by which a step detects new ones.

The transaction that writes a signal increases the run's signal count (`mailbox`). A step that consumes a signal, or
releases the run, requires the count to be unchanged since it read the signals. So the step either sees a signal, or
fails and reads again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StrictBool, TypeAdapter, ValidationError

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
    DELETE FROM runtime_signal WHERE id = ANY(%(signals)s::bigint[]) AND run_id = (SELECT id FROM run)
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

    id: int = 0
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSignal:
    """The run was paused."""

    id: int = 0
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSignal:
    """The run was resumed."""

    id: int = 0
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSignal:
    """A message was sent to the run."""

    id: int = 0
    by: str
    text: str
    reviewer: StrictBool = False
    cuts: StrictBool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSignal:
    """An event arrived for which a call waited. `result` is the call's result, `by` the sender.

    For a call that an instance performs, `used_at` is when it used its approval, and with `failed` it reported a
    failure.
    """

    id: int = 0
    frame: str
    call: str
    result: dict[str, Any]
    by: str = ""
    used_at: datetime | None = None
    failed: StrictBool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InquirySignal:
    """A person asked the agent about the call that waits at this gate."""

    id: int = 0
    gate: UUID
    inquiry: Annotated[UUID, Field(alias="question")]
    by: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSignal:
    """A person extended the deadline of a gate. `document` is signed, as approvals keep it."""

    id: int = 0
    document: str


SentSignal = (
    CancelSignal
    | PauseSignal
    | ResumeSignal
    | MessageSignal
    | InquirySignal
    | ExtensionSignal
    | EventSignal
)
Signal = GateDecidedSignal | SentSignal

# The signals whose fields are those of their stored bodies. A decision has a body of its own.
_CLASSES: dict[str, type[SentSignal]] = {
    CANCEL: CancelSignal,
    PAUSE: PauseSignal,
    RESUME: ResumeSignal,
    MESSAGE: MessageSignal,
    INQUIRY: InquirySignal,
    EXTENSION: ExtensionSignal,
    EVENT: EventSignal,
}
_KINDS = {signal: kind for kind, signal in _CLASSES.items()}


@cache
def _make_adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_CLASSES[kind])


def encode_decision(gate: UUID, decision: Decision) -> str:
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


def send(connection: Connection, run: UUID, signal: SentSignal) -> None:
    """Write a signal that takes effect now. The caller has increased the signal count in the same transaction."""
    kind = _KINDS[type(signal)]
    document = _make_adapter(kind).dump_python(signal, mode="json", by_alias=True, exclude={"id"})
    connection.execute(
        """
        INSERT INTO runtime_signal (run_id, kind, body, effective_at)
        VALUES (%s, %s, %s, clock_timestamp())
        """,
        (run, kind, json.dumps(document)),
    )


def count_signals(connection: Connection, run: UUID, kind: str) -> int:
    """Count the signals of a kind that no step has consumed. The caller has locked the run's row."""
    return connection.execute(
        "SELECT 1 FROM runtime_signal WHERE run_id = %s AND kind = %s", (run, kind)
    ).rowcount


def find_last_kind(connection: Connection, run: UUID, *kinds: str) -> str | None:
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
    return build_pending_signals(
        rows[0][0], (row[2:] for row in rows if row[2] is not None), rows[0][1]
    )


def build_pending_signals(
    count: int, rows: Iterable[Sequence[Any]], origin: Sequence[str]
) -> PendingSignals:
    """Build the mail from rows with id, kind, body, the time of effect, and whether that has come.

    Raises Tampered.
    """
    due, later = list[Signal](), list[tuple[datetime, Signal]]()
    for number, kind, body, at, is_due in rows:
        signal = _decode(number, kind, body)
        if is_due:
            due.append(signal)
        else:
            later.append((at, signal))
    settled = [signal.gate for _, signal in later if isinstance(signal, GateDecidedSignal)]
    return PendingSignals(
        count=count,
        due=tuple(due),
        next=min([at for at, _ in later], default=None),
        settling=frozenset(settled),
        origin=tuple(origin),
    )


def list_waiting_signals(connection: Connection, run: UUID) -> tuple[Signal, ...]:
    """Return every signal that no step has consumed, due or not. Raises Tampered."""
    rows = connection.execute(
        "SELECT id, kind, body FROM runtime_signal WHERE run_id = %s ORDER BY id", (run,)
    )
    return tuple(_decode(number, kind, body) for number, kind, body in rows.fetchall())


def delete_cancels(connection: Connection, run: UUID) -> None:
    """Delete cancellations that came after the run had failed. The caller has locked its row."""
    connection.execute("DELETE FROM runtime_signal WHERE run_id = %s AND kind = %s", (run, CANCEL))


def _decode(number: int, kind: str, body: str) -> Signal:
    """Decode a signal. Raises Tampered if none of our processes wrote it."""
    try:
        document = json.loads(body)
        if kind in _CLASSES:
            signal: Signal = _make_adapter(kind).validate_python({**document, "id": number})
            return signal
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
    except ValidationError as exc:
        error = exc.errors()[0]
        field = ".".join(map(str, error["loc"]))
        raise Tampered(f"signal {number} cannot be read: {field}: {error['msg']}") from exc
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
