"""The Agent Approval Protocol 1.0: agents outside ask for approvals, and people provision their instances.

Plain views, because the protocol has its own errors, and keeps the text of submitted JSON. An instance's credential is
good for requests alone, a person's token with the scope `instances:manage` for instances alone.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, re_path
from django.views.decorators.csrf import csrf_exempt

from approvals.clock import to_wire
from approvals.decisions import external_requests
from approvals.errors import NotReady
from approvals.outbox.webhook import InvalidUrl
from approvals.people import instances, tokens
from approvals.people.instances import InstanceFields, Webhook
from runtime.core.values import json_values
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import Submitted
from runtime.errors import InvalidInput, KeyMissing, Refusal, Tampered
from runtime.store.pool import UNREACHABLE
from runtime.web.api.runs import PERSON_HEADER, WAIT_HEADER

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 30
RETRY_SECONDS = 60  # after which an instance with too many requests may ask again
READY_SECONDS = 10  # in which a run receives its decision, unless no worker is free
_BEARER = re.compile(r"[Bb]earer ([^\s]+)")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_TYPES = {
    401: "authentication",
    403: "authorization",
    404: "not_found",
    409: "conflict",
    429: "rate_limit",
    500: "internal",
    503: "dependency",
}  # all others are `invalid_request`
_DURATION = "[1-9][0-9]*[smh]"
_FORMS = {  # of the texts, by the names of their fields; the others are objects
    **dict.fromkeys(("tool", "server", "note", "instance_name"), ".+"),
    **dict.fromkeys(("agent_reasoning", "type", "url"), ".*"),
    **dict.fromkeys(("timeout", "wait"), _DURATION),
    "status": "succeeded|failed",
    "registration_id": "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "signing_secret": "whsec_[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=",  # the base64 of 32 bytes
}

View = Callable[..., HttpResponse]


class WireError(Exception):
    """A refusal in the words of the protocol. `param` names the wrong field."""

    def __init__(
        self, message: str, param: str = "", *, code: str = "invalid_field", status: int = 400
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


@dataclass(frozen=True, slots=True, kw_only=True)
class WireCall:
    """One call of the protocol. `instance` is set for requests, `actor` for instances."""

    request: HttpRequest
    instance: Any = None
    actor: Any = None

    def key(self) -> str:
        """Return the idempotency key. Raise WireError without one."""
        key = self.request.headers.get("Idempotency-Key", "")
        if not key:
            raise WireError("Send an Idempotency-Key.", code="missing_idempotency_key")
        if not _KEY.fullmatch(key):
            message = "An Idempotency-Key has 1 to 255 visible ASCII characters."
            raise WireError(message, code="invalid_idempotency_key")
        return key

    def fields(self, names: str, *, required: str = "") -> dict[str, Submitted]:
        """Return the fields of the body. Raise WireError naming one that is unknown, missing or wrong."""
        fields = json_values.read_object(self.request.body)
        _check_fields(_collect_values(fields), names, required=required)
        return fields


def _make_view(caller: str = "", **methods: Any) -> View:
    """Make a view of the functions for its methods, which an `instance` or an `actor` calls, each with a WireCall."""

    @csrf_exempt
    def view(request: HttpRequest, **route: str) -> HttpResponse:
        request_id = str(uuid4())
        try:
            call, handler = _authenticate(request), methods.get(str(request.method))
            if not caller:
                raise _not_found("There is no such address.")
            if handler is None:
                message = f"{request.method} is not possible here."
                raise WireError(message, code="method_not_allowed", status=405)
            try:
                ids = {name: UUID(text) for name, text in route.items()}
            except ValueError:
                raise _not_found("There is no such object.") from None
            if getattr(call, caller) is None:
                message = "This credential is not for this address."
                raise WireError(message, code="wrong_credential", status=403)
            if call.actor is not None:
                instances.require_provisioner(call.actor)
            response: HttpResponse = handler(call, **ids)
        except Exception as exc:  # every answer has the protocol's shape and the id
            response = _answer_refusal(exc, request_id)
            if isinstance(exc, NotReady):
                _hold(response, call.instance.id, READY_SECONDS)
        response["X-Request-ID"] = request_id
        return response

    return view


def _authenticate(request: HttpRequest) -> WireCall:
    """Return the caller. Raise WireError without a valid credential or token."""
    match = _BEARER.fullmatch(request.headers.get("Authorization", ""))
    plain = match[1] if match else ""
    instance = instances.authenticate(plain)
    actor = tokens.authenticate(plain) if instance is None else None
    if instance is None and actor is None:
        raise WireError("Send a valid credential.", code="invalid_credential", status=401)
    return WireCall(request=request, instance=instance, actor=actor)


# Requests


def _create(call: WireCall) -> HttpResponse:
    key = call.key()
    fields = call.fields(
        "tool server agent_reasoning arguments context timeout", required="tool arguments timeout"
    )
    timeout = _parse_duration(fields["timeout"].value)
    external, is_new = external_requests.ask(
        instance=call.instance, key=key, submitted=fields, timeout=timeout
    )
    return _make_response(_write_request(external), 201 if is_new else 200)


def _read(call: WireCall, id: UUID) -> HttpResponse:
    query = call.request.GET.dict()
    if unknown := query.keys() - {"wait"}:
        raise WireError("This is not known.", min(unknown), code="unknown_parameter")
    _check_fields(query, "wait")
    seconds = _parse_duration(query["wait"]).total_seconds() if query else 0.0
    external = external_requests.read(instance=call.instance, request=id)
    response = _make_response(_write_request(external))
    if external.state.status is external_requests.RequestStatus.PENDING and seconds:
        _hold(response, call.instance.id, min(seconds, MAX_WAIT_SECONDS))
    return response


def _cancel(call: WireCall, id: UUID) -> HttpResponse:
    return _make_response(
        _write_request(external_requests.cancel(instance=call.instance, request=id))
    )


def _consume(call: WireCall, id: UUID) -> HttpResponse:
    key = call.key()
    if call.request.body:
        call.fields("")
    return _make_response(
        _write_request(external_requests.use(instance=call.instance, request=id, key=key))
    )


def _report(call: WireCall, id: UUID) -> HttpResponse:
    fields = call.fields("status note", required="status")
    note = fields.get("note")
    external = external_requests.report(
        instance=call.instance,
        request=id,
        succeeded=fields["status"].value == "succeeded",
        note=note.value if note else None,
    )
    return _make_response(_write_request(external))


# Instances


def _provision(call: WireCall) -> HttpResponse:
    document, is_new = instances.provision(_read_instance_fields(call), actor=call.actor)
    return _make_response(json.dumps(document), 201 if is_new else 200)


def _find(call: WireCall, id: UUID) -> HttpResponse:
    return _make_response(json.dumps(instances.find(instance=id, actor=call.actor)))


def _change(call: WireCall, id: UUID) -> HttpResponse:
    fields = _read_instance_fields(call, is_change=True)
    return _make_response(json.dumps(instances.change(fields, instance=id, actor=call.actor)))


def _read_instance_fields(call: WireCall, *, is_change: bool = False) -> InstanceFields:
    """Return the fields of the body. A change has one at least, and a null removes the webhook."""
    key = call.key()
    fields = json_values.read_object(call.request.body)
    values = _collect_values(fields)
    if is_change and not values:
        raise WireError("Send at least one field.", "instance_name", code="missing_field")
    is_removed = is_change and values.get("delivery", "") is None
    delivery = values.pop("delivery") if is_removed else values.get("delivery")
    _check_fields(values, "instance_name delivery")
    return InstanceFields(
        webhook=None if delivery is None else _parse_webhook(delivery),
        keeps_webhook="delivery" not in fields,
        name=values.get("instance_name"),
        key=key,
        fingerprint=json_values.hash_fields(fields),
    )


def _delete(call: WireCall, id: UUID) -> HttpResponse:
    external_requests.end_instance(instance=id, actor=call.actor, any_owner=False)
    return HttpResponse(status=204)


# Values


def _collect_values(fields: Mapping[str, Submitted]) -> dict[str, Any]:
    return {name: field.value for name, field in fields.items()}


def _check_fields(
    values: Mapping[str, Any], names: str, *, required: str = "", within: str = ""
) -> None:
    """Raise WireError naming a field that is unknown, missing or wrong."""
    for name in values:
        if name not in names.split():
            raise WireError("This field is not known.", within + name, code="unknown_field")
    for name in required.split():
        if name not in values:
            raise WireError("This field is required.", within + name, code="missing_field")
    for name, value in values.items():
        form = _FORMS.get(name)
        if form is None and not isinstance(value, dict):
            raise WireError("This must be an object.", within + name)
        if form and not (isinstance(value, str) and re.fullmatch(form, value, re.DOTALL)):
            code = "invalid_webhook_url" if name == "url" else "invalid_field"
            raise WireError(f"This must be text that matches {form}", within + name, code=code)


def _parse_webhook(delivery: dict[str, Any]) -> Webhook:
    if delivery.get("type") != "webhook":
        message = "The type must be webhook."
        raise WireError(message, "delivery.type", code="unsupported_delivery_type")
    names = "type url registration_id signing_secret"
    _check_fields(delivery, names, required=names, within="delivery.")
    secret, registration_id = delivery["signing_secret"], delivery["registration_id"]
    return Webhook(url=delivery["url"], registration_id=registration_id, secret=secret)


def _parse_duration(text: str) -> timedelta:
    return timedelta(seconds=int(text[:-1][:9]) * _UNITS[text[-1]])  # more is too long anyway


def _write_request(external: external_requests.ExternalRequest) -> str:
    """Write a request. Its submitted fields have the text in which they came."""
    fields: dict[str, Any] = {
        "id": str(external.id),
        "status": external.state.status,
        "created_at": to_wire(external.created_at),
        "deadline_at": to_wire(external.deadline),
    }
    state, use = external.state, external.use
    if state.at is not None:
        is_approved = state.status is external_requests.RequestStatus.APPROVED
        fields["decision"] = _drop_empty_fields(
            status=state.status,
            decided_at=to_wire(state.at),
            note=state.note,
            expires_at=to_wire(external.usable_until) if is_approved else None,
        )
    if use is not None:
        at = use.reported_at and to_wire(use.reported_at)
        outcome = at and _drop_empty_fields(status=use.outcome, reported_at=at, note=use.note)
        fields["consumption"] = _drop_empty_fields(
            consumed_at=to_wire(use.used_at), outcome=outcome
        )
    texts = {name: json.dumps(value) for name, value in fields.items()}
    texts |= external.input["submitted"]
    parts = ",".join(f'"{name}":{text}' for name, text in texts.items())
    return f"{{{parts}}}"


def _drop_empty_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value: the protocol has no null."""
    return {name: value for name, value in fields.items() if value}


def _hold(response: HttpResponse, instance: UUID, seconds: float) -> None:
    """Have `config.longpoll` ask again when the run has changed, and give this answer after so many seconds."""
    response[WAIT_HEADER] = f"unmet; {seconds:.0f}s"
    response[PERSON_HEADER] = f"instance {instance}"
    vars(response)["_has_been_logged"] = True  # or Django logs each wait as an error


def _make_response(body: str, status: int = 200) -> HttpResponse:
    return HttpResponse(body, status=status, content_type="application/json")


# Errors


def _answer_refusal(exc: Exception, request_id: str) -> HttpResponse:
    error = _convert_error(exc)
    document = _drop_empty_fields(
        type=_TYPES.get(error.status, "invalid_request"),
        code=error.code,
        message=str(error),
        request_id=request_id,
        param=error.param,
    )
    response = _make_response(json.dumps({"error": document}), error.status)
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if error.status == 429:
        response["Retry-After"] = str(RETRY_SECONDS)
    return response


def _convert_error(exc: Exception) -> WireError:
    match exc:
        case WireError():
            return exc
        case InvalidUrl():
            return WireError(f"The URL {exc}.", "delivery.url", code="invalid_webhook_url")
        case NotJson():
            return WireError(exc.detail, exc.field.partition(".")[0])
        case InvalidInput():
            return WireError(exc.detail, {"name": "instance_name"}.get(exc.field, exc.field) or "")
        case RequestDataTooBig():
            return WireError("The body is too large.", code="too_large", status=413)
        case Refusal():
            return WireError(str(exc), code=exc.code, status=exc.status)
        case Tampered() | KeyMissing():
            message = "The stored data cannot be verified."
            return WireError(message, code="not_approved", status=409)
        case _ if isinstance(exc, UNREACHABLE):
            message = "The database cannot be reached. Try again."
            return WireError(message, code="unavailable", status=503)
        case _:
            log.error("A request of the Agent Approval Protocol failed", exc_info=exc)
            message = "Something went wrong. The error was recorded."
            return WireError(message, code="internal", status=500)


def _not_found(message: str) -> WireError:
    return WireError(message, code="not_found", status=404)


_of_instances, _of_provisioners = partial(_make_view, "instance"), partial(_make_view, "actor")
urlpatterns: list[URLPattern] = [
    path("v1/requests", _of_instances(POST=_create), name="aap-requests"),
    path("v1/requests/<str:id>", _of_instances(GET=_read, DELETE=_cancel), name="aap-request"),
    path("v1/requests/<str:id>/consume", _of_instances(POST=_consume), name="aap-consume"),
    path("v1/requests/<str:id>/outcome", _of_instances(POST=_report), name="aap-outcome"),
    path("v1/instances", _of_provisioners(POST=_provision), name="aap-instances"),
    path(
        "v1/instances/<str:id>",
        _of_provisioners(GET=_find, PATCH=_change, DELETE=_delete),
        name="aap-instance",
    ),
    re_path("", _make_view(), name="aap-missing"),
]
