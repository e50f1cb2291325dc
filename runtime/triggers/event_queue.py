"""Which events of a trigger start their run now, and when to look again. Pure.

Events of one key start in order. An event waits while too many runs of the trigger or of its key go on, while too many
started lately, and until its key was quiet for the debounce.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from runtime.store.tables.occurrences import WaitingEvent
from runtime.triggers.event_definition import EventDefinition

AGAIN = timedelta(seconds=1)  # until the next look at events that wait for a run to end
LONGEST = 10  # debounces that an event waits at most, if others of its key keep coming


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """The events that start now, in order, and when to look again, None without an event that waits."""

    start: tuple[WaitingEvent, ...]
    next_at: datetime | None


def plan_starts(
    definition: EventDefinition,
    waiting: Sequence[WaitingEvent],
    running: Mapping[str, int],
    starts: Sequence[datetime],
    now: datetime,
) -> EventPlan:
    """Return the plan for events that wait, in order, active runs by key, and recent starts, the oldest first."""
    active, recent = dict(running), list(starts)
    starting, again = list[WaitingEvent](), list[datetime]()
    for event in waiting:
        ready = max([_quiet_at(definition, event), *_rate_at(definition, recent)])
        if ready > now:
            again.append(ready)
        elif _is_full(definition, event.key, active):
            again.append(now + AGAIN)
        else:
            starting.append(event)
            active[event.key] = active.get(event.key, 0) + 1
            recent.append(now)
    return EventPlan(start=tuple(starting), next_at=min(again, default=None))


def _quiet_at(definition: EventDefinition, event: WaitingEvent) -> datetime:
    """Return when the last event of a key has been the last one for the debounce."""
    quiet = timedelta(seconds=definition.debounce)
    return min(event.at + quiet, event.first_at + LONGEST * quiet)


def _rate_at(definition: EventDefinition, recent: Sequence[datetime]) -> list[datetime]:
    """Return when the next run may start, empty if the rate does not say."""
    if definition.rate is None or len(recent) < definition.rate:
        return []
    return [recent[-definition.rate] + timedelta(seconds=definition.rate_seconds)]


def _is_full(definition: EventDefinition, key: str, active: Mapping[str, int]) -> bool:
    is_full = definition.at_once is not None and sum(active.values()) >= definition.at_once
    return is_full or (
        definition.at_once_per_key is not None and active.get(key, 0) >= definition.at_once_per_key
    )
