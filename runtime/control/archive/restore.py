"""Restores an archived run into Postgres, from the object store or from a copy of its file. For admins."""

from uuid import UUID

from runtime.control import access
from runtime.control.transaction import atomic, notify
from runtime.core.values.limits import MAX_REASON
from runtime.errors import NoSuchRun, NotArchived, NotImportable, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import archived_runs, runs
from runtime.store.archived_runs import Archive

_FOR_ADMINS = "Only admins may restore archived runs."


def restore(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Put an archived run back into Postgres. It keeps its journal with every MAC.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; NotArchived;
    ObjectStoreDown, Tampered or KeyMissing, with nothing changed.
    """
    access.for_admins(run, actor, _FOR_ADMINS)
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required to restore a run"
    )
    with atomic() as connection:
        runs.locked_row(connection, run)
        archived_run = archived_runs.read(connection, run)
        if archived_run is None:
            raise NotArchived
        _put_back(archived_run, reason_text, actor)
    return access.readable(run, actor)


def restore_file(*, data: bytes, reason: object, actor: Actor) -> UUID:
    """Restore a run from the bytes of its file, in case the object store has lost it. Return its id.

    Raise, in this order: Forbidden; InvalidInput naming `reason`; NotImportable; NotArchived.
    """
    wiring.access().require(actor, "admin")
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required to restore a run"
    )
    try:
        archived_run = archived_runs.parse(None, data)
        with atomic() as connection:
            runs.locked_row(connection, archived_run.run)
            _put_back(archived_run, reason_text, actor)
    except NoSuchRun as exc:
        raise NotImportable("its run is not one of this installation") from exc
    except Tampered as exc:
        raise NotImportable(str(exc)) from exc
    return archived_run.run


def _put_back(archived_run: Archive, reason: str, actor: Actor) -> None:
    with atomic() as connection:
        archived_runs.put_back(connection, archived_run)
        wiring.approvals().record_audit(
            run=archived_run.run, actor=actor, act="restored", detail={"reason": reason}
        )
        notify(archived_run.run, hint=False)
