"""The errors of the engine. A docstring is the default message; attributes hold the facts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json, size_of
from runtime.core.values.limits import MAX_DELIVERY, MAX_MATCHED, MAX_UNDELIVERED


class RuntimeFault(Exception):
    """The base of the engine's errors; never raised itself."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ObjectStoreDown(RuntimeFault):
    """The object store cannot be reached."""


# Errors of the caller


class RequestError(Exception):
    """The base of refused requests; never raised itself.

    The API answers with `status`, `code`, `detail` and `extra`; `field` names the wrong part of the request.
    """

    status: int
    code: str
    field: str | None = None

    def __init__(self, detail: str = "", **extra: object) -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip())
        self.extra = extra if self.field is None else {"field": self.field, **extra}

    @property
    def detail(self) -> str:
        """The text that people read."""
        return str(self)


class BusinessKeyConflict(RequestError):
    """This business key was already used for another input."""

    status, code = 409, "business_key"


class NoSuchRun(RequestError):
    """There is no such run."""

    status, code = 404, "not_found"


class NoSuchEntry(RequestError):
    """The run's journal has no such entry."""

    status, code = 404, "not_found"


class HistoryRemoved(RequestError):
    """Entries of this run that are needed for that were removed."""

    status, code = 409, "history_removed"

    def __init__(self, begins: int, at: datetime | None, then: str, **extra: object) -> None:
        when = "" if at is None else f" on {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        super().__init__(
            f"History before entry {begins} was removed{when}: {then}.", begins=begins, **extra
        )


class NotQuiescent(RequestError):
    """This entry cannot be forked: the run had ended, or an effect was running or in doubt."""

    status, code = 409, "not_quiescent"


class NotAtRest(RequestError):
    """Only a waiting run without pending signals can be exported."""

    status, code = 409, "not_at_rest"


class NotQuarantined(RequestError):
    """The run is not in quarantine."""

    status, code = 409, "not_quarantined"


class NotFailed(RequestError):
    """Only a failed run with its payloads can be retried."""

    status, code = 409, "not_failed"

    def __init__(self, run_status: str) -> None:
        super().__init__(
            f"The run is {run_status}: only a failed run that retention has not removed can be tried again.",
            status=run_status,
        )
        self.run_status = run_status


class RunArchived(RequestError):
    """The run is in the archive: an admin must restore it first."""

    status, code = 409, "run_archived"


class NotArchived(RequestError):
    """The run is not in the archive."""

    status, code = 409, "not_archived"


class NotHeld(RequestError):
    """The run is not under a legal hold."""

    status, code = 409, "not_held"


class NothingToReplay(RequestError):
    """The contents of this run were removed: nothing is left to compare."""

    status, code = 409, "nothing_to_replay"


class ReplayNotEnded(RequestError):
    """Another replay of this run has not ended."""

    status, code = 409, "replay_not_ended"


class AgentWithoutWorker(RequestError):
    """No live worker has the agent of this run."""

    status, code = 409, "agent_without_worker"


class NoSuchReplay(RequestError):
    """There is no such replay of this run."""

    status, code = 404, "not_found"


class NotImportable(RequestError):
    """The file is not a run that can be imported."""

    status, code = 422, "not_importable"

    @property
    def detail(self) -> str:
        """Return the text for pages and API."""
        return f"Not imported: {self}."


class RunKnown(RequestError):
    """This run is or was in this installation."""

    status, code = 409, "run_known"


class TooLarge(RequestError):
    """The run is too large to be imported."""

    status, code = 413, "too_large"


class RunEnded(RequestError):
    """The run has ended."""

    status, code = 409, "run_ended"

    def __init__(self, run_status: str) -> None:
        super().__init__(f"The run is {run_status} already.", status=run_status)
        self.run_status = run_status


class TooManyUndelivered(RequestError):
    """The run accepts no more messages until its agent has received some."""

    status, code, field = 409, "too_many_unheard", "text"

    def __init__(self) -> None:
        super().__init__(
            f"{MAX_UNDELIVERED} messages to this run are undelivered. Wait until its agent has received some."
        )


class EventConflict(RequestError):
    """This id was already used for another event."""

    status, code, field = 409, "event_conflict", "id"


class TooManyMatched(RequestError):
    """Too many calls wait for this event."""

    status, code, field = 409, "too_many_matched", "name"

    def __init__(self) -> None:
        super().__init__(
            f"More than {MAX_MATCHED} calls wait for this event, so it was not delivered."
        )


class NoSuchSchedule(RequestError):
    """There is no such schedule."""

    status, code = 404, "not_found"


class ScheduleEnded(RequestError):
    """The schedule has ended."""

    status, code = 409, "schedule_ended"


class NoSuchTrigger(RequestError):
    """There is no such trigger."""

    status, code = 404, "not_found"


class TriggerEnded(RequestError):
    """The trigger has ended."""

    status, code = 409, "trigger_ended"


class NotRetried(RequestError):
    """Only an event that started no run and does not wait can be retried."""

    status, code = 409, "not_retried"


class NoSuchWebhook(RequestError):
    """There is no webhook at this address."""

    status, code = 404, "not_found"


class NotVerified(RequestError):
    """The signature of the delivery does not verify, or its time is too far from now."""

    status, code = 401, "not_verified"


class DeliveryTooLarge(RequestError):
    """The delivery is too large."""

    status, code = 413, "too_large"

    def __init__(self) -> None:
        super().__init__(f"The body of a delivery may have at most {MAX_DELIVERY} bytes.")


class SwitchAlreadyEngaged(RequestError):
    """The kill switch is engaged already."""

    status, code = 409, "stopped_already"


class SwitchNotEngaged(RequestError):
    """There is no such kill switch, or it is disengaged already."""

    status, code = 409, "stop_not_on"


# A race that another process won


class GateNotOpen(RuntimeFault):
    """The gate is no longer open."""


class LeaseLost(RuntimeFault):
    """Another worker has the run, so this worker can no longer write to it."""


# Errors of the installation: the run is released unchanged and tried again later


class WorkerOutdated(RuntimeFault):
    """A newer version of an agent than this process has wrote the run."""


class KeyMissing(RuntimeFault):
    """A stored document was signed with a key that is not in the ring."""


class LedgerBroken(RuntimeFault):
    """The ledger of this machine does not verify: no approved call starts on this machine."""


# Errors in stored data: the run is quarantined


class Tampered(RuntimeFault):
    """Stored data differs from the data that was written."""


class Forbidden(RequestError):
    """The actor may read the object but not do this.

    `code` is the reason, such as `requester`, `origin` or `scope`.
    """

    status = 403

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class UnknownAgent(RequestError):
    """This process has no agent with that name."""

    status, code, field = 422, "invalid", "agent"

    @property
    def detail(self) -> str:
        """Return the text for pages and API."""
        return "There is no agent with this name."


class InvalidInput(RequestError):
    """A value cannot be accepted; `field` names it, as a dotted path. `further` are more errors."""

    status, code = 422, "invalid"
    field: str

    def __init__(self, field: str, detail: str, further: Sequence["InvalidInput"] = ()) -> None:
        self.field = field
        self.further = tuple(further)
        error_fields = [{"field": error.field, "detail": error.detail} for error in further]
        super().__init__(detail, **({"others": error_fields} if error_fields else {}))

    @property
    def all_of_it(self) -> str:
        """All errors, each with its place, in one line."""
        return "; ".join(f"{error.field}: {error.detail}" for error in (self, *self.further))


def require_json_input(value: Any, field: str, limit: int | None = None) -> Any:
    """Return a JSON value of at most `limit` bytes. Raise InvalidInput naming the field, or the place in it."""
    try:
        require_json(value, field)
    except NotJson as exc:
        raise InvalidInput(exc.field, exc.detail) from exc
    if limit is not None and (size := size_of(value)) > limit:
        raise InvalidInput(field, f"is {size} bytes of JSON, at most {limit} are allowed")
    return value
