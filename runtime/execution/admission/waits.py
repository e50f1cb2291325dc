"""Begins the wait of a call from its arguments, or refuses it with an error that the model can act on."""

from datetime import datetime, timedelta
from typing import Any

from runtime.core.commands import StartWait
from runtime.core.continuation import Call, Continuation
from runtime.core.events import WaitEnded, WaitStarted
from runtime.core.limits import MAX_EVENT_NAME, MAX_MATCH, MAX_WAIT_DAYS, size_of


class InvalidWait(Exception):
    """The arguments name no time or event that could come; the model sees the error."""


def begin(now: Continuation, effect: StartWait, at: datetime) -> WaitStarted | WaitEnded:
    """Begin the wait of a call at `at`, or refuse it. Its arguments fit its schema."""
    call = now.call(effect.frame, effect.call)
    assert call.terms is not None  # a call is checked before it waits
    try:
        if call.terms.waits == "time":
            until = _time(call.args.get("moment"), "moment", at)
            return WaitStarted(frame=effect.frame, call=call.id, until=until)
        return _for_event(effect.frame, call, at)
    except InvalidWait as exc:
        return WaitEnded(frame=effect.frame, call=call.id, outcome="refused", result=str(exc))


def timed_out(now: Continuation, frame: str, call: str) -> WaitEnded:
    """Return the end of a wait whose time has come."""
    waiting_call = now.call(frame, call)
    for_time = waiting_call.terms is not None and waiting_call.terms.waits == "time"
    result: dict[str, Any] = {"timed_out": True}
    if for_time:
        result = {"slept_until": waiting_call.until.isoformat() if waiting_call.until else None}
    return WaitEnded(frame=frame, call=call, outcome="timed_out", result=result)


def _for_event(frame: str, call: Call, at: datetime) -> WaitStarted:
    event, match = call.args.get("event"), call.args.get("match")
    if not isinstance(event, str) or not 1 <= len(event) <= MAX_EVENT_NAME:
        raise InvalidWait(f"event: its name must have 1 to {MAX_EVENT_NAME} characters")
    if not isinstance(match, dict):
        raise InvalidWait("match: must be an object; {} is contained in every event")
    if (size := size_of(match)) > MAX_MATCH:
        raise InvalidWait(f"match: is {size} bytes of JSON, at most {MAX_MATCH} are taken")
    until = _time(call.args.get("until"), "until", at)
    return WaitStarted(frame=frame, call=call.id, until=until, event=event, match=match)


def _time(text: object, field: str, at: datetime) -> datetime:
    """Read a future time (RFC 3339). The error contains the present time, because a model has no clock."""
    now = f"it is {at.isoformat(timespec='seconds')} now"
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidWait(
            f"{field}: must be a moment with its zone, as in 2030-01-31T09:00:00Z; {now}"
        )
    if moment <= at:
        raise InvalidWait(f"{field}: must be still to come; {now}")
    if moment > at + timedelta(days=MAX_WAIT_DAYS):
        raise InvalidWait(f"{field}: must be at most {MAX_WAIT_DAYS} days ahead; {now}")
    return moment
