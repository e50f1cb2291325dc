"""The API operation for sending external events, which end waits of calls and start runs by triggers."""

from datetime import datetime
from typing import Annotated, Any

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from runtime.control.external_events import deliver
from runtime.core.values.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput
from runtime.web import requests
from runtime.web.requests import OPTIONAL_BODY, Authenticated, Body, with_example

router = Router(tags=["events"])

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


@router.post("/events", response={201: EventOut, 200: EventOut})
def send_event(request: Authenticated, body: EventIn = OPTIONAL_BODY) -> Status[dict[str, Any]]:
    """Send an external event; 200 if it was sent before. For admins.

    It ends each open wait that names the event and whose `match` is contained in `data`, and is offered to each
    trigger of its name. It is not kept for later ones. It is known by its source and id for 30 days. CloudEvents 1.0
    are accepted too, in structured and binary mode; their `type` is the name.
    """
    sent_body: EventIn | None = body
    event = sent_body or _of_headers(request)
    sent = deliver(
        id=event.id,
        name=event.name,
        data=event.data,
        source=event.source,
        subject=event.subject,
        actor=request.auth,
    )
    facts = {"id": event.id, "name": sent.event.name, "source": event.source or ""}
    counts = {"waits": sent.event.waits, "triggers": sent.triggers, "at": sent.event.at}
    return Status(201 if sent.new else 200, {**facts, **counts})


def _of_headers(request: Authenticated) -> EventIn:
    """Return the CloudEvent without data whose attributes are in the headers. Raise InvalidInput."""
    if not requests.is_cloud_event(request):
        raise InvalidInput("body", "Field required")
    return EventIn(**requests.read_cloud_event(request, None))
