"""The API operation for sending external events that calls wait for."""

from datetime import datetime
from typing import Annotated, Any

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from runtime.control.external_events import deliver
from runtime.core.limits import MAX_EVENT_NAME
from runtime.store.tables.external_events import ExternalEvent
from runtime.web.requests import Authenticated, Body, with_example

router = Router(tags=["events"])

_NAME = WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_EVENT_NAME})


class EventIn(Body):
    """An external event. The same `id` with the same name and data is the same event."""

    model_config = with_example(id="sign-4711", name="signed", data={"contract": "C-1"})

    id: Annotated[Any, _NAME]
    name: Annotated[Any, _NAME]
    data: Annotated[Any, WithJsonSchema({"type": "object"})]


class EventOut(Schema):
    """An event received at `at`, and the number of waits it ended."""

    id: str
    name: str
    waits: int
    at: datetime


@router.post("/events", response={201: EventOut, 200: EventOut})
def send_event(request: Authenticated, body: EventIn) -> Status[ExternalEvent]:
    """Send an external event: 201, or 200 without effect if this id was sent before.

    It ends each open wait that names the event and whose `match` is contained in `data`. It is not kept for later
    waits. Its id is remembered for 30 days.
    """
    sent = deliver(id=body.id, name=body.name, data=body.data, actor=request.auth)
    return Status(201 if sent.new else 200, sent.event)
