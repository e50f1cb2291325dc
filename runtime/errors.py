"""The errors of the engine. A docstring is the default message; attributes hold the facts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import measure_size, require_json
from runtime.core.values.limits import MAX_DELIVERY, MAX_MATCHED, MAX_UNDELIVERED


class RuntimeFault(Exception):
    """The base of the engine's errors; never raised itself."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ObjectStoreDown(RuntimeFault):
    """The object store cannot be reached."""


# Errors of the caller


class Refusal(Exception):
    """The base of all refusals; never raised itself. A class without a `code` of its own has that of its base."""

    status: int
    code: str
    field: str | None = None

    def __init_subclass__(
        cls, *, code: str = "", status: int = 409, field: str | None = None
    ) -> None:
        if code:
            cls.status, cls.code, cls.field = status, code, field

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip())


class RequestError(Refusal):
    """The base of refused requests; never raised itself.

    The API answers with `status`, `code`, `detail` and `extra`; `field` names the wrong part of the request.
    """

    def __init__(self, detail: str = "", **extra: object) -> None:
        super().__init__(detail)
        self.extra = extra if self.field is None else {"field": self.field, **extra}

    @property
    def detail(self) -> str:
        """The text that people read."""
        return str(self)


class BusinessKeyConflict(RequestError, code="business_key"):
    """This business key was already used for another input."""


class NoSuchRun(RequestError, code="not_found", status=404):
    """There is no such run."""


class NoSuchEntry(RequestError, code="not_found", status=404):
    """The run's journal has no such entry."""


class HistoryRemoved(RequestError, code="history_removed"):
    """Entries of this run that are needed for that were removed."""

    def __init__(self, begins: int, at: datetime | None, then: str, **extra: object) -> None:
        when = "" if at is None else f" on {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        super().__init__(
            f"History before entry {begins} was removed{when}: {then}.", begins=begins, **extra
        )


class NotQuiescent(RequestError, code="not_quiescent"):
    """This entry cannot be forked: the run had ended, or an effect was running or in doubt."""


class NotAtRest(RequestError, code="not_at_rest"):
    """Only a waiting run without pending signals can be exported."""


class NotQuarantined(RequestError, code="not_quarantined"):
    """The run is not in quarantine."""


class NotFailed(RequestError, code="not_failed"):
    """Only a failed run with its payloads can be retried."""

    def __init__(self, run_status: str) -> None:
        super().__init__(
            f"The run is {run_status}: only a failed run that retention has not removed can be tried again.",
            status=run_status,
        )
        self.run_status = run_status


class RunArchived(RequestError, code="run_archived"):
    """The run is in the archive: an admin must restore it first."""


class NotArchived(RequestError, code="not_archived"):
    """The run is not in the archive."""


class NotHeld(RequestError, code="not_held"):
    """The run is not under a legal hold."""


class NothingToReplay(RequestError, code="nothing_to_replay"):
    """The contents of this run were removed: nothing is left to compare."""


class ReplayNotEnded(RequestError, code="replay_not_ended"):
    """Another replay of this run has not ended."""


class AgentWithoutWorker(RequestError, code="agent_without_worker"):
    """No live worker has the agent of this run."""


class NoSuchReplay(RequestError, code="not_found", status=404):
    """There is no such replay of this run."""


class NotImportable(RequestError, code="not_importable", status=422):
    """The file is not a run that can be imported."""

    @property
    def detail(self) -> str:
        """Return the text for pages and API."""
        return f"Not imported: {self}."


class RunKnown(RequestError, code="run_known"):
    """This run is or was in this installation."""


class TooLarge(RequestError, code="too_large", status=413):
    """The run is too large to be imported."""


class RunEnded(RequestError, code="run_ended"):
    """The run has ended."""

    def __init__(self, run_status: str) -> None:
        super().__init__(f"The run is {run_status} already.", status=run_status)
        self.run_status = run_status


class TooManyUndelivered(RequestError, code="too_many_unheard", field="text"):
    """The run accepts no more messages until its agent has received some."""

    def __init__(self) -> None:
        super().__init__(
            f"{MAX_UNDELIVERED} messages to this run are undelivered. Wait until its agent has received some."
        )


class EventConflict(RequestError, code="event_conflict", field="id"):
    """This id was already used for another event."""


class TooManyMatched(RequestError, code="too_many_matched", field="name"):
    """Too many calls wait for this event."""

    def __init__(self) -> None:
        super().__init__(
            f"More than {MAX_MATCHED} calls wait for this event, so it was not delivered."
        )


class NoSuchSchedule(RequestError, code="not_found", status=404):
    """There is no such schedule."""


class ScheduleEnded(RequestError, code="schedule_ended"):
    """The schedule has ended."""


class NoSuchTrigger(RequestError, code="not_found", status=404):
    """There is no such trigger."""


class TriggerEnded(RequestError, code="trigger_ended"):
    """The trigger has ended."""


class NotRetried(RequestError, code="not_retried"):
    """Only an event that started no run and does not wait can be retried."""


class NoSuchWebhook(RequestError, code="not_found", status=404):
    """There is no webhook at this address."""


class NotVerified(RequestError, code="not_verified", status=401):
    """The signature of the delivery does not verify, or its time is too far from now."""


class DeliveryTooLarge(RequestError, code="too_large", status=413):
    """The delivery is too large."""

    def __init__(self) -> None:
        super().__init__(f"The body of a delivery may have at most {MAX_DELIVERY} bytes.")


class SwitchAlreadyEngaged(RequestError, code="stopped_already"):
    """The kill switch is engaged already."""


class SwitchNotEngaged(RequestError, code="stop_not_on"):
    """There is no such kill switch, or it is disengaged already."""


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


class UnknownAgent(RequestError, code="invalid", status=422, field="agent"):
    """This process has no agent with that name."""

    @property
    def detail(self) -> str:
        """Return the text for pages and API."""
        return "There is no agent with this name."


class InvalidInput(RequestError, code="invalid", status=422):
    """A value cannot be accepted; `field` names it, as a dotted path. `further` are more errors."""

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
    if limit is not None and (size := measure_size(value)) > limit:
        raise InvalidInput(field, f"is {size} bytes of JSON, at most {limit} are allowed")
    return value
