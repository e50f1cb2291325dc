"""Two tools that wait. The engine waits for them, and holds no worker, thread or connection.

A tool that sleeps would die with its worker, and a program cannot answer a gate. An event is not kept for waits that
begin later, because its meaning for a run that did not wait for it is unknown.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from agents.errors import ToolError
from agents.sdk import tool
from agents.sdk.spec import ToolSpec
from runtime.core.values.limits import MAX_EVENT_NAME, MAX_WAIT_DAYS

_WITHIN = f"at most {MAX_WAIT_DAYS} days ahead"
Moment = Annotated[
    str,
    Field(
        max_length=40,
        description=f"a moment of RFC 3339 with its zone, as in 2030-01-31T09:00:00Z, {_WITHIN}",
    ),
]
EventName = Annotated[str, Field(min_length=1, max_length=MAX_EVENT_NAME)]
Match = Annotated[
    dict[str, Any], Field(description="what the event's data must contain; {} for anything")
]


def _mark_waiting(kind: Literal["time", "event"]) -> Callable[[ToolSpec], ToolSpec]:
    return lambda spec: replace(spec, waits=kind)


@_mark_waiting("time")
@tool(effect="read", sentence="Wait until {moment}")
def sleep_until(moment: Moment) -> dict[str, Any]:
    """Do nothing until a moment. Returns {"slept_until": …}."""
    _refuse_call()


@_mark_waiting("event")
@tool(effect="read", sentence="Wait for the event {event} with {match} until {until}")
def wait_for(event: EventName, match: Match, until: Moment) -> dict[str, Any]:
    """Wait for an event from outside, for no longer than until a moment.

    Returns {"event": …, "id": …, "data": …} when it comes, {"timed_out": true} if it does not. Only an event
    that comes after this call counts.
    """
    _refuse_call()


def _refuse_call() -> NoReturn:
    raise ToolError("the engine waits in place of this function")
