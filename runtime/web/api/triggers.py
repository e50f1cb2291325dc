"""The API of triggers, with the events and webhook deliveries that start runs by them, and of schedules."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router, Schema, Status
from pydantic import ConfigDict, WithJsonSchema

from runtime.control.external_events import deliver
from runtime.core.values.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput
from runtime.store.tables.occurrences import OccurrenceRow, compute_number
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes, listing, trials, webhooks
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.schedule_definition import ScheduleDefinition
from runtime.triggers.signatures import Scheme
from runtime.triggers.sources import SOURCES
from runtime.web import requests
from runtime.web.requests import OPTIONAL_BODY, Authenticated, Body, mark_raw_body, with_example
from runtime.web.schemas import with_fields, with_fields_of, with_sent_fields

router = Router(tags=["triggers"])
schedules = Router(tags=["schedules"])

# Fields accept any value: the act itself names the wrong one.
Moment = Annotated[Any, WithJsonSchema({"type": ["string", "null"], "format": "date-time"})]
Words = Annotated[Any, WithJsonSchema({"type": "string"})]
_EXAMPLE: dict[str, Any] = {
    "name": "New hires",
    "agent": "hr_onboarding",
    "event": "employee.hired",
    "filter": "data.country == 'DE'",
    "mapping": {
        "full_name": "{{data.first}} {{data.last}}",
        "username": "{{data.login}}",
        "email": "{{data.login}}@example.com",
        "security_level": "{{data.level}}",
    },
    "key": "data.login",
    "business_key": "'hire ' + data.login",
}


@with_fields(dict.fromkeys(SOURCES, (Words, "")))
@with_sent_fields(EventDefinition)
class TriggerIn(Body):
    """A trigger: events of the name `event` start runs.

    `filter`, `key`, `business_key` and `thread` are expressions in CEL over `id`, `source`, `name`, `subject`, `time`
    and `data` of the event, and so are the parts of texts of `mapping` in double braces. Events of one key start in
    order. At most `rate` runs start in `rate_seconds`. With a `debounce`, only the last event of a key starts a run,
    when none came for that many seconds. A trigger may name one source: each of its items is an event of this
    trigger. With `wakes`, which needs the right to send events, an event of a source or a webhook goes to the run
    of the agent that has this business key, or id, and waits for it; `first` starts a run if none is there.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})


class TrialIn(TriggerIn):
    """A trigger, and a sample: an event, or the data of one."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{**_EXAMPLE, "sample": {"login": "newhire"}}]},
    )

    sample: Any = None


@with_fields_of(OccurrenceRow, "number id source at key state run reason run_status")
class TriggeredOut(Schema):
    """An event. `state`: `new`, `waiting`, `started`, `woken`, `skipped`, `refused`, `failed`, or the run's status."""


@with_fields_of(listing.PastAct, "act at")
class ActOut(Schema):
    """An act of a person on the schedule or trigger."""

    by: str | None
    detail: dict[str, Any]


@with_fields_of(TriggerRow, "id name agent event owner state problem")
class TriggerItem(Schema):
    """A trigger in the list. `problem` says why it starts nothing although it is active."""


class TriggerList(Schema):
    """The triggers that you may read: your own, or all for an admin. `cut` says that there are more, left out here."""

    items: list[TriggerItem]
    cut: bool


class WebhookIn(Body):
    """How deliveries are signed; `header` is for the scheme `header`. Without a `secret` one is made."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"scheme": "standard"}]}
    )

    scheme: Annotated[Any, WithJsonSchema({"enum": [*Scheme]})]
    header: Words = ""
    secret: Words = ""


class NewWebhookOut(Schema):
    """The address below this server, and the secret: neither is shown again."""

    path: str
    secret: str


@with_fields_of(listing.WebhookView)
class WebhookOut(Schema):
    """The webhook of a trigger, and the deliveries that were refused there."""


@with_fields_of(listing.SourceView)
class SourceOut(Schema):
    """The source that a trigger reads: the last look that succeeded, and why a later one did not.

    It is `late` if no look succeeded for two minutes.
    """


class ReceiptOut(Schema):
    """The id of a delivery. `skipped` says why it starts no run, empty if it may start one.

    `challenge` is there when Slack checks the address.
    """

    id: str
    challenge: str | None = None
    skipped: str = ""


@with_fields(dict.fromkeys(SOURCES, (str, ...)))
@with_fields_of(listing.TriggerView, "id state problem owner makers")
@with_fields_of(
    EventDefinition,
    "name agent event filter mapping key business_key at_once at_once_per_key debounce rate rate_seconds wakes thread",
)
class TriggerOut(Schema):
    """One trigger with its newest events and its newest acts.

    `owner` is the requester of its runs; none of `makers` decides in them. `problem` says why it starts nothing
    although it is active. `more` is the number of the event before which the earlier ones begin, for `before`.
    """

    history: list[TriggeredOut]
    more: int | None
    acts: list[ActOut]
    webhook: WebhookOut | None
    source: SourceOut | None


@with_fields_of(trials.EventTrial)
class EventTrialOut(Schema):
    """The result of a trial for one event and its data; `problem` names the wrong place and says why."""


class EventTrials(Schema):
    """One result for each event: the sample first, then the newest ones of the trigger."""

    items: list[EventTrialOut]


@router.get("/triggers", response=TriggerList)
def list_triggers(request: Authenticated) -> dict[str, Any]:
    """List the triggers that you may read."""
    items, cut = listing.read_list(TriggerKind.EVENT, request.auth)
    return {"items": items, "cut": cut}


@router.post("/triggers", response={201: TriggerOut})
def make_trigger(request: Authenticated, body: TriggerIn) -> Status[dict[str, Any]]:
    """Make a trigger. You own it: you are the requester of its runs, and decide in none of them."""
    trigger = changes.create(TriggerKind.EVENT, sent=body.dict(), actor=request.auth)
    return Status(201, _read(request, trigger))


@router.post("/triggers/try", response=EventTrials)
def try_trigger(request: Authenticated, body: TrialIn) -> dict[str, Any]:
    """Try a trigger on a sample. Nothing is started or kept."""
    sent = body.dict()
    sample = sent.pop("sample")
    return {"items": trials.try_definition(sent, request.auth, sample=sample)}


@router.get("/triggers/{uuid:trigger}", response=TriggerOut)
def read_trigger(
    request: Authenticated, trigger: UUID, before: int | None = None
) -> dict[str, Any]:
    """Read one trigger, with its events before one."""
    return _read(request, trigger, before)


@router.post("/triggers/{uuid:trigger}/change", response=TriggerOut)
def change_trigger(request: Authenticated, trigger: UUID, body: TriggerIn) -> dict[str, Any]:
    """Replace the definition of a trigger. You become one of its makers."""
    changes.change(TriggerKind.EVENT, id=trigger, sent=body.dict(), actor=request.auth)
    return _read(request, trigger)


@router.post("/triggers/{uuid:trigger}/try", response=EventTrials)
def try_change(request: Authenticated, trigger: UUID, body: TrialIn) -> dict[str, Any]:
    """Try a changed trigger on a sample and on its newest events. Nothing is started or kept."""
    sent = body.dict()
    sample = sent.pop("sample")
    return {"items": trials.try_definition(sent, request.auth, sample=sample, id=trigger)}


@router.post("/triggers/{uuid:trigger}/pause", response=TriggerOut)
def pause_trigger(request: Authenticated, trigger: UUID) -> dict[str, Any]:
    """Pause a trigger. It gets no events, and those that wait start nothing until it is resumed."""
    changes.pause(TriggerKind.EVENT, id=trigger, actor=request.auth)
    return _read(request, trigger)


@router.post("/triggers/{uuid:trigger}/resume", response=TriggerOut)
def resume_trigger(request: Authenticated, trigger: UUID) -> dict[str, Any]:
    """Start runs again, from the next event on, and of the events that wait."""
    changes.resume(TriggerKind.EVENT, id=trigger, actor=request.auth)
    return _read(request, trigger)


@router.post("/triggers/{uuid:trigger}/end", response=TriggerOut)
def end_trigger(request: Authenticated, trigger: UUID) -> dict[str, Any]:
    """End a trigger for good. Its runs continue."""
    changes.end_trigger(TriggerKind.EVENT, id=trigger, actor=request.auth)
    return _read(request, trigger)


@router.post("/triggers/{uuid:trigger}/events/{int:number}/retry", response=TriggerOut)
def retry_event(request: Authenticated, trigger: UUID, number: int) -> dict[str, Any]:
    """Handle an event again that started no run. You become one of the makers."""
    changes.retry(id=trigger, number=number, actor=request.auth)
    return _read(request, trigger)


@router.post("/triggers/{uuid:trigger}/webhook", response=NewWebhookOut)
def make_webhook(request: Authenticated, trigger: UUID, body: WebhookIn) -> dict[str, Any]:
    """Give a trigger a webhook, or another address and secret. They are in this answer only."""
    webhook = webhooks.make(id=trigger, actor=request.auth, **body.dict())
    return {
        "path": reverse("api:deliver_webhook", args=[webhook.address]),
        "secret": webhook.secret,
    }


@router.post("/triggers/{uuid:trigger}/webhook/remove", response=TriggerOut)
def remove_webhook(request: Authenticated, trigger: UUID) -> dict[str, Any]:
    """Remove the webhook of a trigger. Its address then answers 404."""
    webhooks.remove(id=trigger, actor=request.auth)
    return _read(request, trigger)


@router.post(
    "/hooks/{str:address}",
    response={202: ReceiptOut, 200: ReceiptOut},
    auth=None,
)
@mark_raw_body
def deliver_webhook(request: HttpRequest, address: str) -> Status[webhooks.Receipt]:
    """Receive a delivery for a trigger; 200 if it was received before.

    The signature of the body is its authentication; no token is needed.
    """
    receipt = webhooks.receive(address, request.headers, request.body)
    return Status(202 if receipt.new else 200, receipt)


_NAME = WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_EVENT_NAME})
_TEXT = WithJsonSchema({"type": "string", "maxLength": MAX_EVENT_NAME})


class EventIn(Body):
    """An external event. The same `source` and `id` with the same content is the same event."""

    model_config = with_example(id="sign-4711", name="signed", data={"contract": "C-1"})

    id: Annotated[Any, _NAME]
    name: Annotated[Any, _NAME]
    data: Annotated[Any, WithJsonSchema({"type": "object"})]
    source: Annotated[Any, _TEXT] = ""
    subject: Annotated[Any, _TEXT] = ""


class EventOut(Schema):
    """An event received at `at`, the number of waits it ended, and the number of triggers that were offered it."""

    id: str
    name: str
    source: str
    waits: int
    triggers: int
    at: datetime


@router.post("/events", response={201: EventOut, 200: EventOut}, tags=["events"])
def send_event(request: Authenticated, body: EventIn = OPTIONAL_BODY) -> Status[dict[str, Any]]:
    """Send an external event; 200 if it was sent before. For admins.

    It ends each open wait that names the event and whose `match` is contained in `data`, and is offered to each
    trigger of its name. It is not kept for later ones. It is known by its source and id for 30 days. CloudEvents 1.0
    are accepted too, in structured and binary mode; their `type` is the name.
    """
    event: EventIn | None = body
    if event is None:  # a CloudEvent without data has its attributes in the headers
        if not requests.is_cloud_event(request):
            raise InvalidInput("body", "Field required")
        event = EventIn(**requests.read_cloud_event(request, None))
    sent = deliver(**event.dict(), actor=request.auth)
    facts = {"id": event.id, "name": sent.event.name, "source": event.source or ""}
    counts = {"waits": sent.event.waits, "triggers": sent.triggers, "at": sent.event.at}
    return Status(201 if sent.new else 200, {**facts, **counts})


# Schedules

_SCHEDULE: dict[str, Any] = {
    "name": "Nightly onboarding",
    "agent": "hr_onboarding",
    "input": {"full_name": "New Hire", "username": "newhire", "security_level": 2},
    "cron": "30 2 * * MON-FRI",
    "zone": "Europe/Berlin",
}


@with_sent_fields(ScheduleDefinition)
class ScheduleIn(Body):
    """A schedule: `cron` with five fields in `zone`, or an interval of `every` seconds from `starts_at`.

    A time without an offset is one of `zone`. In the texts of `input`, `{{time}}` and `{{date}}` become the time for
    which the run is. `missed` is the rule for times that passed while nothing ran, `overlap` the one for a time while
    an earlier run has not ended. Each time is delayed by up to `jitter` seconds, always the same for one time.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_SCHEDULE]})


class RunNowIn(Body):
    """The time for which the run is; now without one. The same time starts one run."""

    at: Moment = None


class BackfillIn(Body):
    """A range of past times, both ends included."""

    first: Moment = None
    until: Moment = None


@with_fields_of(OccurrenceRow, "at kind state run reason by run_status")
class TimeOut(Schema):
    """A time. `state` is `waiting`, `started`, `skipped`, `failed`, or the status of its ended run."""


@with_fields_of(TriggerRow, "id name agent owner state next_at problem")
class ScheduleItem(Schema):
    """A schedule in the list. `problem` says why it starts nothing although it is active."""


class ScheduleList(Schema):
    """The schedules that you may read: your own, or all for an admin. `cut` says that there are more, left out here."""

    items: list[ScheduleItem]
    cut: bool


@with_fields_of(listing.TriggerView, "id state owner makers next_times")
@with_fields_of(ScheduleDefinition)
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


@schedules.get("/schedules", response=ScheduleList)
def list_schedules(request: Authenticated) -> dict[str, Any]:
    """List the schedules that you may read."""
    items, cut = listing.read_list(TriggerKind.SCHEDULE, request.auth)
    return {"items": items, "cut": cut}


@schedules.post("/schedules", response={201: ScheduleOut})
def make_schedule(request: Authenticated, body: ScheduleIn) -> Status[dict[str, Any]]:
    """Make a schedule. You own it: you are the requester of its runs, and decide in none of them."""
    schedule = changes.create(TriggerKind.SCHEDULE, sent=body.dict(), actor=request.auth)
    return Status(201, _read_schedule(request, schedule))


@schedules.get("/schedules/{uuid:schedule}", response=ScheduleOut)
def read_schedule(
    request: Authenticated, schedule: UUID, before: datetime | None = None
) -> dict[str, Any]:
    """Read one schedule, with its history before a time, in UTC if it has no offset."""
    number = None if before is None else compute_number(before.replace(tzinfo=before.tzinfo or UTC))
    return _read_schedule(request, schedule, number)


@schedules.post("/schedules/{uuid:schedule}/change", response=ScheduleOut)
def change_schedule(request: Authenticated, schedule: UUID, body: ScheduleIn) -> dict[str, Any]:
    """Replace the definition of a schedule. You become one of its makers."""
    changes.change(TriggerKind.SCHEDULE, id=schedule, sent=body.dict(), actor=request.auth)
    return _read_schedule(request, schedule)


@schedules.post("/schedules/{uuid:schedule}/pause", response=ScheduleOut)
def pause_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """Pause a schedule. Its times start no run until it is resumed."""
    changes.pause(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read_schedule(request, schedule)


@schedules.post("/schedules/{uuid:schedule}/resume", response=ScheduleOut)
def resume_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """Start runs again, from the next time on."""
    changes.resume(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read_schedule(request, schedule)


@schedules.post("/schedules/{uuid:schedule}/end", response=ScheduleOut)
def end_schedule(request: Authenticated, schedule: UUID) -> dict[str, Any]:
    """End a schedule for good. Its runs continue."""
    changes.end_trigger(TriggerKind.SCHEDULE, id=schedule, actor=request.auth)
    return _read_schedule(request, schedule)


@schedules.post("/schedules/{uuid:schedule}/run-now", response=RunNowOut)
def run_schedule_now(
    request: Authenticated, schedule: UUID, body: RunNowIn = OPTIONAL_BODY
) -> dict[str, Any]:
    """Start a run at once. It may run beside another one, and while the schedule is paused."""
    sent: RunNowIn | None = body
    return {"run": changes.run_now(id=schedule, actor=request.auth, at=sent and sent.at)}


@schedules.post("/schedules/{uuid:schedule}/backfill", response=BackfillOut)
def backfill_schedule(request: Authenticated, schedule: UUID, body: BackfillIn) -> dict[str, Any]:
    """Start a run for each past time of a range that has none. They run one after another.

    None starts while the schedule is paused.
    """
    times = changes.backfill(id=schedule, first=body.first, until=body.until, actor=request.auth)
    return {"times": times}


def _collect_fields(view: listing.TriggerView, schema: type[Schema]) -> dict[str, Any]:
    """Return the values of these fields: those of the view, or else those of its definition."""
    return {
        name: getattr(view if hasattr(view, name) else view.definition, name, None)
        for name in schema.model_fields
    }


def _read(request: Authenticated, trigger: UUID, before: int | None = None) -> dict[str, Any]:
    view = listing.read_one(TriggerKind.EVENT, trigger, request.auth, before)
    definition = view.definition
    return {
        **_collect_fields(view, TriggerOut),
        **{kind: definition.location if kind == definition.source else "" for kind in SOURCES},
        "more": view.history[-1].number if view.has_more else None,
    }


def _read_schedule(
    request: Authenticated, schedule: UUID, before: int | None = None
) -> dict[str, Any]:
    view = listing.read_one(TriggerKind.SCHEDULE, schedule, request.auth, before)
    next_before = view.history[-1].at if view.has_more else None
    return {**_collect_fields(view, ScheduleOut), "more": next_before}
