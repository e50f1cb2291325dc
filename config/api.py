"""Builds the API: authentication, the routers of all packages, and one shape for errors: `{"code", "detail"}`."""

import logging
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, URLResolver
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Swagger
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from agents.web import api as agents_api
from approvals.people import tokens
from approvals.rights import access, principals
from approvals.web.api import (
    allowances,
    instances,
    prompts,
    requests,
    subscriptions,
    teamwork,
    version_changes,
)
from runtime import errors
from runtime.core.values.errors import NewerSchema, NotJson
from runtime.ports.access import Actor
from runtime.store.pool import UNREACHABLE
from runtime.web.api import history, runs, triggers
from runtime.web.requests import StrictParser, read_actor, refuse_unknown_input

log = logging.getLogger(__name__)
View = Callable[..., HttpResponse]


class Bearer(HttpBearer):
    """Authenticates `Authorization: Bearer <token>`. An invalid token is refused, even with a valid session."""

    def authenticate(self, request: HttpRequest, token: str) -> Actor:
        """Return the bearer of the token, or refuse the request."""
        actor = tokens.authenticate(token)
        if actor is None:
            raise AuthenticationError
        return actor


class Session(APIKeyCookie):
    """Authenticates a browser's session. Its request must carry our CSRF token."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> Actor | None:
        """Return the person of the session, or None if not logged in. Raises Forbidden without the CSRF token."""
        if not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise errors.Forbidden(
                "csrf", "A request of a browser session needs its X-CSRFToken header."
            )
        return read_actor(request)

    def authenticate(self, request: HttpRequest, key: str | None) -> Actor | None:
        """Satisfy the base class. It is never called, because `__call__` uses the session of the middleware."""
        raise AssertionError


# The answer of every operation that is refused, as the schema describes it.
_REFUSAL = {
    "type": "object",
    "title": "Refusal",
    "required": ["code", "detail"],
    "properties": {
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "field": {"type": "string", "description": "the wrong field or parameter, if it is one"},
    },
    "additionalProperties": True,
    "examples": [{"code": "invalid", "detail": "must not be empty", "field": "reason"}],
}
_REFUSED = {
    "description": "Refused. 401: no or a wrong token; 403: no right; 404: not there, or not yours to read;"
    " 409: not possible in this state; 410: expired; 422: a wrong, missing or unknown field or parameter.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}


class Api(NinjaAPI):
    """NinjaAPI with our error shape on every path. Only readers see its schema and its page."""

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the name of the function. Generated clients name their functions so."""
        return operation.view_func.__name__

    @cached_property
    def _schema(self) -> OpenAPISchema:
        schema = super().get_openapi_schema()
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"]["4XX"] = _REFUSED
        schema["components"]["schemas"]["Refusal"] = _REFUSAL
        return schema

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return ninja's schema with the answer of refused requests for each operation. It takes 0.2 s, once."""
        return self._schema

    @property
    def urls(self) -> tuple[list[URLResolver | URLPattern], str, str]:
        """Return the URLs, with a guard around each of ninja's own pages."""
        patterns, app, namespace = super().urls
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                guard = _GUARDS.get(pattern.name or "")
                view = pattern.callback
                pattern.callback = _shape_method_error(guard(view) if guard else view)
        return patterns, app, namespace


def _restrict_to_readers(view: View) -> View:
    """Restrict a view to callers who may read runs, by a token with that scope or by a session."""

    @wraps(view)
    def guarded(request: HttpRequest, **path: Any) -> HttpResponse:
        try:
            actor = Bearer()(request) or Session()(request)
            if actor is None:
                raise AuthenticationError
            access.AccessService().require(actor, principals.Scope.RUNS_READ)
        except (AuthenticationError, errors.Forbidden) as exc:
            return api.on_exception(request, exc)
        return view(request, **path)

    return guarded


# Guards of ninja's own pages, by URL name. Operations authenticate their callers themselves.
_GUARDS: dict[str, Callable[[View], View]] = {
    "openapi-json": _restrict_to_readers,
    "openapi-view": login_required,
}

api = Api(
    title="Signoff",
    version="1",
    description="Runs of agents, and the approvals they wait for.",
    urls_namespace="api",
    auth=[Bearer(), Session()],
    parser=StrictParser(),
    # The default sends the page's schema to a validator on the internet.
    docs=Swagger(settings={"validatorUrl": None}),
)
api.add_decorator(refuse_unknown_input)
for router in (
    *(runs.router, history.router, triggers.schedules, triggers.router, requests.router),
    *(teamwork.router, allowances.router, instances.router, subscriptions.router),
    *(version_changes.router, prompts.router, agents_api.router),
):
    api.add_router("", router)


@csrf_exempt
def answer_unknown_address(request: HttpRequest) -> HttpResponse:
    """Answer 404 for an unknown address below /api/."""
    return build_error(404, "not_found", "There is no such address.")


def build_error(status: int, code: str, detail: str, /, **extra: object) -> HttpResponse:
    """Build an error. `extra` holds the code's own fields, such as `field` or `decided_by`."""
    return JsonResponse({"code": code, "detail": detail, **extra}, status=status)


def _shape_method_error(view: View) -> View:
    @wraps(view)
    def shaped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if response.status_code != 405:
            return response
        refused = build_error(405, "method_not_allowed", f"{request.method} is not possible here.")
        refused["Allow"] = response["Allow"]
        return refused

    return shaped


@api.exception_handler(AuthenticationError)
def _answer_unauthenticated(request: HttpRequest, exc: AuthenticationError) -> HttpResponse:
    response = build_error(401, "unauthenticated", "Send a valid bearer token, or log in.")
    response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(errors.RequestError)
def _answer_request_error(request: HttpRequest, exc: errors.RequestError) -> HttpResponse:
    return build_error(exc.status, exc.code, exc.detail, **exc.extra)


@api.exception_handler(Http404)
def _answer_not_found(request: HttpRequest, exc: Http404) -> HttpResponse:
    return build_error(404, "not_found", str(exc) or "Not found.")


@api.exception_handler(NotJson)
def _answer_not_json(request: HttpRequest, exc: NotJson) -> HttpResponse:
    return build_error(422, "invalid", exc.detail, field=exc.field)


@api.exception_handler(ValidationError)
def _answer_invalid(request: HttpRequest, exc: ValidationError) -> HttpResponse:
    first = exc.errors[0]
    # ("query", "limit"), ("body", <name of the parameter>, "agent"): callers know only the last part.
    location = first["loc"][2 if first["loc"][0] == "body" else 1 :]
    return build_error(
        422, "invalid", first["msg"], field=".".join(str(part) for part in location) or "body"
    )


@api.exception_handler(errors.Tampered)
@api.exception_handler(errors.KeyMissing)
@api.exception_handler(NewerSchema)
def _answer_unverified(request: HttpRequest, exc: Exception) -> HttpResponse:
    return build_error(409, "unverified", f"The stored data cannot be verified: {exc}")


@api.exception_handler(RequestDataTooBig)
def _answer_too_big(request: HttpRequest, exc: RequestDataTooBig) -> HttpResponse:
    detail = f"The body of a request may have at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes."
    return build_error(413, "too_large", detail)


@api.exception_handler(HttpError)
def _answer_http_error(request: HttpRequest, exc: HttpError) -> HttpResponse:
    if isinstance(exc.__cause__, errors.InvalidInput):  # ninja wraps every error of our parser
        return _answer_request_error(request, exc.__cause__)
    return build_error(
        exc.status_code, "malformed" if exc.status_code == 400 else "error", str(exc)
    )


_WITHOUT_STORE = " Until it answers, only archived runs and large results cannot be read."


def answer_unavailable(request: HttpRequest, exc: Exception) -> HttpResponse:
    """Answer 503 while Postgres or the object store is unreachable."""
    component = name_missing_part(exc)
    log.warning("The %s cannot be reached: %s", component, exc)
    limits = _WITHOUT_STORE if isinstance(exc, errors.ObjectStoreDown) else ""
    response = build_error(
        503, "unavailable", f"The {component} cannot be reached. Try again.{limits}"
    )
    response["Retry-After"] = "5"
    return response


for failure in (*UNREACHABLE, errors.ObjectStoreDown):
    api.exception_handler(failure)(answer_unavailable)


def name_missing_part(exc: BaseException) -> str:
    """Name the part that cannot be reached. The error itself may name a folder or a bucket."""
    return "object store" if isinstance(exc, errors.ObjectStoreDown) else "database"
