"""The API of schedules: make, change, pause, resume and end one, run it now, back-fill a range, read its history."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import ConfigDict, WithJsonSchema

from runtime.store.tables.occurrences import OccurrenceRow, number_of
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes, listing
from runtime.triggers.listing import TriggerView
from runtime.triggers.schedule_definition import ScheduleDefinition
from runtime.web.api.triggers import ActOut, collect_fields
from runtime.web.requests import OPTIONAL_BODY, Authenticated, Body
from runtime.web.schemas import accepts, fields_of

router = Router(tags=["schedules"])

# Fields accept any value: the act itself names the wrong one.
Moment = Annotated[Any, WithJsonSchema({"type": ["string", "null"], "format": "date-time"})]

_EXAMPLE: dict[str, Any] = {
    "name": "Nightly onboarding",
    "agent": "hr_onboarding",
    "input": {"full_name": "New Hire", "username": "newhire", "security_level": 2},
    "cron": "30 2 * * MON-FRI",
    "zone": "Europe/Berlin",
}


@accepts(ScheduleDefinition)
class ScheduleIn(Body):
    """A schedule: `cron` with five fields in `zone`, or an interval of `every` seconds from `starts_at`.

    A time without an offset is one of `zone`. In the texts of `input`, `{{time}}` and `{{date}}` become the time for
    which the run is. `missed` is the rule for times that passed while nothing ran, `overlap` the one for a time while
    an earlier run has not ended. Each time is delayed by up to `jitter` seconds, always the same for one time.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})


class RunNowIn(Body):
    """The time for which the run is; now without one. The same time starts one run."""

    at: Moment = None


class BackfillIn(Body):
    """A range of past times, both ends included."""

    first: Moment = None
    until: Moment = None


@fields_of(OccurrenceRow, "at kind state run reason by run_status")
class TimeOut(Schema):
    """A time. `state` is `waiting`, `started`, `skipped`, `failed`, or the status of its ended run."""


@fields_of(TriggerRow, "id name agent owner state next_at problem")
class ScheduleItem(Schema):
    """A schedule in the list. `problem` says why it starts nothing although it is active."""


class ScheduleList(Schema):
    """The schedules that you may read: your own, or all for an admin. `cut` says that there are more, left out here."""

    items: list[ScheduleItem]
    cut: bool


@fields_of(TriggerView, "id state owner makers next_times")
@fields_of(ScheduleDefinition)
class ScheduleOut(Schema):
    """One schedule with its next five times, its newest past times, and its newest acts.

    `owner` is the requester of its runs; none of `makers` decides in them. `more` is the time before which the earlier
    history begins, for `before`.
    """

    history: list[TimeOut]
    more: datetime | None
    last_failure: TimeOut | None
    acts: list[ActOut]


class RunNowOut(Schema):
    """The run that was started."""

    run: UUID


class BackfillOut(Schema):
    """How many times start a run."""

    times: int


@router.get("/schedules", response=ScheduleList)
def list_schedules(request: Authenticated) -> dict[str, Any]:
    """List the schedules that you may read."""
    items, cut = listing.read_list(TriggerKind.SCHEDULE, request.auth)
    return {"items": items, "cut": cut}


@router.post("/schedules", response={201: ScheduleOut})
def make_schedule(request: Authenticated, body: ScheduleIn) -> Status[dict[str, Any]]:
    """Make a schedule. You own it: you are the requester of its runs, and decide in none of them."""
    schedule = changes.create(TriggerKind.SCHEDULE, sent=body.dict(), actor=request.auth)
    return Status(201, _read(request, schedule))


@router.get("/schedules/{uuid:schedule}", response=ScheduleOut)
def read_schedule(
    request: Authenticated, schedule: UUID, before: datetime | None = None
) -> dict[str, Any]:
    """Read one schedule, with its history before a time, in UTC if it has no offset."""
    number = None if before is None else number_of(before.replace(tzinfo=before.tzinfo or UTC))
    return _fields(listing.read_one(TriggerKind.SCHEDULE, schedule, request.auth, number))


@router.post("/schedules/{uuid:schedule}/change", response=ScheduleOut)
def change_schedule(request: Authenticated, schedule: UUID, body: ScheduleIn) -> dict[str, Any]:
    """Replace the definition of a schedule. You become one of its makers."""
    changes.change(TriggerKind.SCHEDULE, id=schedule, sent=body.dict(), actor=request.auth)
    return _read(request, schedule)


@router.post("/schedules/{uuid:schedule}/pause", response=ScheduleOut)
def pause_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """Pause a schedule. Its times start no run until it is resumed."""
    changes.pause(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read(request, schedule)


@router.post("/schedules/{uuid:schedule}/resume", response=ScheduleOut)
def resume_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """Start runs again, from the next time on."""
    changes.resume(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read(request, schedule)


@router.post("/schedules/{uuid:schedule}/end", response=ScheduleOut)
def end_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """End a schedule for good. Its runs continue."""
    changes.end(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read(request, schedule)


@router.post("/schedules/{uuid:schedule}/run-now", response=RunNowOut)
def run_schedule_now(
    request: Authenticated, schedule: UUID, body: RunNowIn = OPTIONAL_BODY
) -> dict[str, Any]:
    """Start a run at once. It may run beside another one, and while the schedule is paused."""
    sent: RunNowIn | None = body
    return {"run": changes.run_now(id=schedule, actor=request.auth, at=sent and sent.at)}


@router.post("/schedules/{uuid:schedule}/backfill", response=BackfillOut)
def backfill_schedule(request: Authenticated, schedule: UUID, body: BackfillIn) -> dict[str, Any]:
    """Start a run for each past time of a range that has none. They run one after another.

    None starts while the schedule is paused.
    """
    times = changes.backfill(id=schedule, first=body.first, until=body.until, actor=request.auth)
    return {"times": times}


def _read(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    return _fields(listing.read_one(TriggerKind.SCHEDULE, schedule, request.auth))


def _fields(view: TriggerView) -> dict[str, Any]:
    next_before = view.history[-1].at if view.has_more else None
    return {**collect_fields(view, ScheduleOut), "more": next_before}
