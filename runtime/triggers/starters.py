"""What started a run, if no person did: a schedule or a trigger."""

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from runtime.errors import NoSuchSchedule, NoSuchTrigger
from runtime.ports.access import Actor
from runtime.store import pool, starts
from runtime.store.pool import Connection
from runtime.triggers import changes
from runtime.triggers.events import changes as trigger_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A schedule or a trigger, as `kind` says."""

    kind: str
    id: UUID
    name: str


def of_run(run: UUID, actor: Actor) -> Starter | None:
    """Return what started a run, None if a person did or the actor may not read it."""
    with pool.in_transaction() as connection:
        found = starts.started_by(connection, run)
        with suppress(NoSuchSchedule, NoSuchTrigger):
            if found is not None:
                kind, place = found
                return Starter(kind=kind, id=place, name=_name(connection, kind, place, actor))
    return None


def _name(connection: Connection, kind: str, place: UUID, actor: Actor) -> str:
    if kind == "schedule":
        return changes.readable(connection, place, actor).name
    return trigger_changes.readable(connection, place, actor).name
