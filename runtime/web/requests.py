"""Reads requests: the actor, the text of a form, the parameters of a list or of an operation, and CloudEvents.

Unknown fields are refused, not ignored: `{"verdict": "approve", "args": ...}` must not approve the original
arguments. Ninja validates the fields it knows; `refuse_unknown_input` refuses the rest.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote
from uuid import UUID, uuid4

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from ninja import Schema
from ninja.params import functions
from ninja.parser import Parser
from pydantic import BaseModel, ConfigDict, WithJsonSchema

from runtime.control import user_actions
from runtime.control.kill_switches import list_active_switches
from runtime.core.values.limits import MAX_EVENT_NAME, MAX_REASON
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.filters import MAX_SEARCH, read_day

# Not the library `cloudevents`: its errors do not name the attribute, and it accepts an object with a name twice. See
# https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
STRUCTURED = "application/cloudevents+json"
_BATCH = "application/cloudevents-batch+json"
_REQUIRED = ("id", "source", "type")

View = TypeVar("View", bound=Callable[..., Any])
Page = Callable[..., HttpResponse]

AUTHENTICATED = "authenticated"  # in the session, as in `Actor`
_RAW = "reads_raw_body"
_OURS = ("request", "response")  # parameters of a view that ninja fills in
PERIOD_DAYS = 7  # of a list, without a choice
MAX_PERIOD_DAYS = 400


# A reason in a body. Any value is accepted, so that a caller who may not read the run gets 404, not 422.
Reason = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_REASON})]


class Authenticated(HttpRequest):
    """A request with an authenticated actor."""

    auth: Actor


def read_actor(request: HttpRequest) -> Actor:
    """Return the person of the session. The view must require a login."""
    return Actor(
        person=request.user.get_username(), authenticated=request.session.get(AUTHENTICATED)
    )


class Audience:
    """The people who may see a page. A stranger is asked to log in, and gets 404 if `require` raises Forbidden.

    Its methods decorate views: a `page` is read, an `action` is a form that is sent, and a `form` is both.
    """

    def __init__(self, require: Callable[[Actor], None] | None = None) -> None:
        self._require = require

    def guard_page(self, view: Page) -> Page:
        """Answer GET and HEAD."""
        return require_safe(self._guard(view))

    def action(self, view: Page) -> Page:
        """Answer POST."""
        return require_POST(self._guard(view))

    def form(self, view: Page) -> Page:
        """Answer GET, HEAD and POST."""
        return require_http_methods(["GET", "HEAD", "POST"])(self._guard(view))

    def _guard(self, view: Page) -> Page:
        @login_required
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                if self._require is not None:
                    self._require(read_actor(request))
            except Forbidden as exc:
                raise Http404 from exc
            return view(request, *args, **kwargs)

        return guarded


users = Audience()
admins = Audience(lambda actor: wiring.resolve_access().require(actor, "admin"))


def redirect_with(
    request: HttpRequest, message: str, to: Any, *args: Any, **kwargs: Any
) -> HttpResponse:
    """Redirect to a page, which shows this message."""
    messages.success(request, message)
    response: HttpResponse = redirect(to, *args, **kwargs)
    return response


def is_htmx(request: HttpRequest) -> bool:
    """Tell whether an open page requests only its changing part."""
    return "HX-Request" in request.headers


def render_live(
    request: HttpRequest, template: str, context: dict[str, Any], status: int, block: str = "live"
) -> HttpResponse:
    """Render the page, for one that is already open only the part that changes."""
    name = f"{template}#{block}" if is_htmx(request) else template
    response = render(request, name, context, status=status)
    patch_vary_headers(response, ["HX-Request"])
    return response


def explain(refusal: RequestError) -> str:
    """Return what a page says of a refusal: the field that it names, and the problem."""
    is_field = isinstance(refusal, InvalidInput)
    return f"The {refusal.field} {refusal.detail}." if is_field else refusal.detail


def choose_layout(request: HttpRequest) -> str:
    """Return the template around an error page: with the navigation if the reader is logged in."""
    user = getattr(request, "user", None)  # missing if an earlier middleware refused the request
    return "base.html" if user is not None and user.is_authenticated else "plain.html"


def read_text(form_values: Mapping[str, str], field: str) -> str:
    """Return the text of a field with LF line breaks: browsers send CRLF."""
    return form_values.get(field, "").replace("\r\n", "\n")


def read_reason(request: HttpRequest) -> str:
    """Return the reason of the form: as typed, after the chosen one if the browser runs no script."""
    preset, typed = read_text(request.POST, "preset"), read_text(request.POST, "reason")
    return f"{preset} {typed}".strip() if preset else typed


def read_form_number(request: HttpRequest) -> UUID:
    """Return the number that the form came with, or a new one: sent twice, a form makes one thing."""
    try:
        return UUID(request.POST.get("form", ""))
    except ValueError:
        return uuid4()


def read_number(text: str, digits: int = 9) -> int | None:
    """Return a number of at most so many digits, None for any other text. int() refuses thousands of digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= digits
    return int(text) if is_number else None


class Body(Schema):
    """The base of every body. It refuses undeclared fields by name."""

    model_config = ConfigDict(extra="forbid")


def with_example(**example: Any) -> ConfigDict:
    """Return the configuration of a body that the documentation shows an example of."""
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})


OPTIONAL_BODY: Any = functions.Body(
    None
)  # for a body that may be empty, which ninja does not parse


class StrictParser(Parser):
    """Ninja's parser, which also refuses an object with the same name twice."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Parse the body. Raise InvalidInput naming a repeated field, or ValueError if it is not JSON."""
        body = json.loads(request.body, object_pairs_hook=_refuse_duplicates)
        is_event = request.path.endswith("/events") and is_cloud_event(request)
        return read_cloud_event(request, body) if is_event else body


def mark_raw_body(view: View) -> View:
    """Mark an operation that reads and checks the body itself."""
    setattr(view, _RAW, True)
    return view


def refuse_unknown_input(view: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse query parameters that the view does not take, and body fields if it takes no body.

    Runs after authentication and ninja's validation. Raise InvalidInput naming the parameter or field.
    """
    parameters = [p for p in signature(view).parameters.values() if p.name not in _OURS]
    names = frozenset(p.name for p in parameters if not _is_body(p))
    has_body = any(_is_body(p) for p in parameters) or hasattr(view, _RAW)

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        path = request.resolver_match.kwargs if request.resolver_match else {}
        for name, values in request.GET.lists():
            if name not in names or name in path:
                raise InvalidInput(name, "is not a parameter of this address")
            if len(values) > 1:
                raise InvalidInput(name, "may be given only once")
        if not has_body:
            _check_no_body(request)
        return view(request, *args, **kwargs)

    return checked


def is_cloud_event(request: HttpRequest) -> bool:
    """Tell whether the request says that it is a CloudEvent."""
    return "ce-specversion" in request.headers or request.content_type in (STRUCTURED, _BATCH)


def read_cloud_event(request: HttpRequest, body: Any) -> dict[str, Any]:
    """Return a CloudEvent 1.0 in structured or binary mode as the API has it. `body` is JSON, None if it is empty.

    Raise InvalidInput naming the attribute.
    """
    if request.content_type == _BATCH:
        raise InvalidInput("content-type", "must not be a batch: send one event in a request")
    event, headers = body, request.headers
    if request.content_type != STRUCTURED:
        names = ("specversion", *_REQUIRED, "subject")
        texts = {name: unquote(headers[f"ce-{name}"]) for name in names if f"ce-{name}" in headers}
        event = {**texts, "data": body}
    if not isinstance(event, dict):
        raise InvalidInput("body", "must be an object")
    if event.get("specversion") != "1.0":
        raise InvalidInput("specversion", "must be 1.0")
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not 1 <= len(event[name]) <= MAX_EVENT_NAME:
            raise InvalidInput(name, f"must be text of 1 to {MAX_EVENT_NAME} characters")
    if "data_base64" in event:
        raise InvalidInput("data_base64", "is not accepted: send JSON as data")
    data = event.get("data")
    return {
        "id": event["id"],
        "name": event["type"],
        "source": event["source"],
        "subject": event.get("subject") or "",
        "data": {} if data is None else data,
    }


def add_kill_switches(request: HttpRequest) -> dict[str, Any]:
    """Add `kill_switches`, read from the database when a template uses it."""
    return {"kill_switches": SimpleLazyObject(list_active_switches)}


def _is_body(parameter: Parameter) -> bool:
    kind = parameter.annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _check_no_body(request: HttpRequest) -> None:
    if not request.body.strip():
        return
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InvalidInput("body", "must be empty or {}")
    for name in body:
        raise InvalidInput(name, "is not a field of this request")


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    document = dict[str, Any]()
    for name, value in pairs:
        if name in document:
            raise InvalidInput(name, "may be given only once")
        document[name] = value
    return document


def read_cursor(request: HttpRequest) -> UUID | None:
    """Return the cursor of the list. Anything but an id is answered with 404."""
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc


def read_page_number(request: HttpRequest) -> int:
    """Return the page number, from 1. Anything else is answered with 404."""
    number = read_number(request.GET.get("page", "1"), digits=6)
    if not number:
        raise Http404
    return number


def read_choice(request: HttpRequest, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed values, empty if it is missing. Other values are answered with 404."""
    text = request.GET.get(name, "")
    if text and text not in allowed:
        raise Http404
    return text


def read_search_text(request: HttpRequest) -> str:
    """Return the text of the search. Raise InvalidInput naming `q`."""
    return user_actions.validate_text("q", request.GET.get("q", "").strip(), MAX_SEARCH)


def read_period(
    first: str, last: str, names: tuple[str, str] = ("from", "to")
) -> tuple[date, date]:
    """Return the first day (UTC) and the day after the last one; without text the last PERIOD_DAYS.

    Raise InvalidInput naming the parameter, which has one of the `names`.
    """
    end = (_read_day(names[1], last) if last else datetime.now(UTC).date()) + timedelta(days=1)
    start = _read_day(names[0], first) if first else end - timedelta(days=PERIOD_DAYS)
    if start >= end:
        raise InvalidInput(names[0], "must not be after the last day")
    if (end - start).days > MAX_PERIOD_DAYS:
        raise InvalidInput(
            names[0], f"must be less than {MAX_PERIOD_DAYS} days before the last day"
        )
    return start, end


def _read_day(name: str, text: str) -> date:
    day = read_day(text)
    if day is None or day.year < 2000:
        raise InvalidInput(name, "must be a day such as 2026-11-24")
    return day.date()
