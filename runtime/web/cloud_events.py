"""Reads CloudEvents 1.0 over HTTP: the structured mode and the binary mode.

It is short and not the library `cloudevents`: its errors do not name the attribute, and it accepts an object that has
the same name twice. The specification: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest

from runtime.core.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput

STRUCTURED = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_REQUIRED = ("id", "source", "type")


def is_one(request: HttpRequest) -> bool:
    """Tell whether the request says that it is a CloudEvent."""
    return "ce-specversion" in request.headers or request.content_type in (STRUCTURED, _BATCH)


def plain(request: HttpRequest, body: Any) -> dict[str, Any]:
    """Return the event as the API has it. `body` is the body's JSON, None if it is empty.

    Raise InvalidInput naming the attribute.
    """
    if request.content_type == _BATCH:
        raise InvalidInput("content-type", "must not be a batch: send one event in a request")
    binary = request.content_type != STRUCTURED
    found = _of_headers(request.headers, body) if binary else body
    if not isinstance(found, dict):
        raise InvalidInput("body", "must be an object")
    if found.get("specversion") != "1.0":
        raise InvalidInput("specversion", "must be 1.0")
    for name in _REQUIRED:
        if not isinstance(found.get(name), str) or not 1 <= len(found[name]) <= MAX_EVENT_NAME:
            raise InvalidInput(name, f"must be text of 1 to {MAX_EVENT_NAME} characters")
    if "data_base64" in found:
        raise InvalidInput("data_base64", "is not accepted: send JSON as data")
    data = found.get("data")
    return {
        "id": found["id"],
        "name": found["type"],
        "source": found["source"],
        "subject": found.get("subject") or "",
        "data": {} if data is None else data,
    }


def _of_headers(headers: Mapping[str, str], data: Any) -> dict[str, Any]:
    names = ("specversion", *_REQUIRED, "subject")
    found = {name: unquote(headers[f"ce-{name}"]) for name in names if f"ce-{name}" in headers}
    return {**found, "data": data}
