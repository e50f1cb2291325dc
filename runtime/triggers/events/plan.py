"""Which events of a trigger start their run now, and when to look again. Pure.

Events of one key start in order. An event waits while too many runs of the trigger or of its key go on, while too many
started lately, and until its key was quiet for the debounce.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from runtime.store.tables.triggers.trigger_events import WaitingEvent
from runtime.triggers.events.definition import Definition

AGAIN = timedelta(seconds=1)  # until the next look at events that wait for a run to end
LONGEST = 10  # debounces that an event waits at most, if others of its key keep coming


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The events that start now, in order, and when to look again, None without an event that waits."""

    start: tuple[WaitingEvent, ...]
    next_at: datetime | None


def due(
    one: Definition,
    waiting: Sequence[WaitingEvent],
    running: Mapping[str, int],
    starts: Sequence[datetime],
    now: datetime,
) -> Plan:
    """Return the plan for events that wait, in order, active runs by key, and recent starts, the oldest first."""
    going, recent = dict(running), list(starts)
    begin, again = list[WaitingEvent](), list[datetime]()
    for event in waiting:
        ready = max([_quiet_at(one, event), *_rate_at(one, recent)])
        if ready > now:
            again.append(ready)
        elif _is_full(one, event.key, going):
            again.append(now + AGAIN)
        else:
            begin.append(event)
            going[event.key] = going.get(event.key, 0) + 1
            recent.append(now)
    return Plan(start=tuple(begin), next_at=min(again, default=None))


def _quiet_at(one: Definition, event: WaitingEvent) -> datetime:
    """Return when the last event of a key has been the last one for the debounce."""
    quiet = timedelta(seconds=one.debounce)
    return min(event.at + quiet, event.first_at + LONGEST * quiet)


def _rate_at(one: Definition, recent: Sequence[datetime]) -> list[datetime]:
    """Return when the next run may start, empty if the rate does not say."""
    if one.rate is None or len(recent) < one.rate:
        return []
    return [recent[-one.rate] + timedelta(seconds=one.rate_seconds)]


def _is_full(one: Definition, key: str, going: Mapping[str, int]) -> bool:
    whole = one.at_once is not None and sum(going.values()) >= one.at_once
    return whole or (one.at_once_per_key is not None and going.get(key, 0) >= one.at_once_per_key)
