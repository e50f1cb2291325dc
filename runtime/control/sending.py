"""Sending events from outside to the calls that wait for them: who may, and what an event may be."""

from typing import Any

from django.db import transaction

from runtime import ports
from runtime.control import engine
from runtime.control.delivery import Delivered
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_EVENT_DATA, MAX_EVENT_NAME, size_of
from runtime.ports import Actor, InvalidInput

SCOPE = "events:send"


def send(*, id: object, name: object, data: object, actor: Actor) -> Delivered:
    """End every wait that is open for this event. The same event again, by its id, changes nothing.

    Raises, in this order: Forbidden; InvalidInput naming `id`, `name` or `data`; EventConflict, TooManyMatched.
    """
    ports.access().require(actor, SCOPE)
    event = {"id": _name(id, "id"), "name": _name(name, "name"), "data": _data(data)}
    with transaction.atomic():
        return engine.send(actor=actor, **event)


def _name(text: object, field: str) -> Any:
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_EVENT_NAME:
        raise InvalidInput(field, f"must be text of 1 to {MAX_EVENT_NAME} characters")
    return _checked(text, field)


def _data(data: object) -> Any:
    if not isinstance(data, dict):
        raise InvalidInput("data", "must be an object")
    size = size_of(_checked(data, "data"))
    if size > MAX_EVENT_DATA:
        raise InvalidInput("data", f"is {size} bytes of JSON, at most {MAX_EVENT_DATA} are taken")
    return data


def _checked(value: Any, field: str) -> Any:
    try:
        require_json(value, field)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    return value
