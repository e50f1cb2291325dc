"""The messages of agents to the requester of their run: those that were released, and those that wait for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from runtime.core.values.enums import CallState
from runtime.queries.spans.calls import CallRecord

_SHOWN = (CallState.GATED, CallState.RETURNED)
_EARLY = datetime.min.replace(tzinfo=UTC)  # of a message that a fork was begun with


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessage:
    """A message of an agent; `text` is None while it waits for its release. `at` is when it was released.

    `changed_by` is the person who replaced it in a fork, empty if none did.
    """

    frame: str
    call: str
    agent: str
    text: str | None
    at: datetime | None
    changed_by: str


def messages_of(calls: Iterable[CallRecord]) -> tuple[AgentMessage, ...]:
    """Return the messages among these calls, those that wait last. A message that was not released is not there."""
    found = [_message(call) for call in calls if call.tells and call.state in _SHOWN]
    return tuple(sorted(found, key=lambda one: (one.text is None, one.at or _EARLY)))


def _message(call: CallRecord) -> AgentMessage:
    released = call.state is CallState.RETURNED
    ends = [span.end for span in call.spans if span.end is not None]
    return AgentMessage(
        frame=call.frame,
        call=call.id,
        agent=call.agent,
        text=str(call.result) if released else None,
        at=max(ends, default=None) if released else None,
        changed_by=call.changed_by,
    )
