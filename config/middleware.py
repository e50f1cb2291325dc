"""Middleware for all answers: forbids caching, limits the time of a page, and adds pages that Django lacks.

These answer a form sent after the session ended, a method that is not allowed, a NUL in a path, and a request without
permission.
"""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.urls import Resolver404, resolve
from django.utils import timezone

from approvals.people import preferences
from runtime.errors import RequestError
from runtime.reads import time_limits
from runtime.web import display
from runtime.web.requests import choose_layout

SAFE = ("GET", "HEAD", "OPTIONS")
FOR_PROGRAMS = ("/api/", "/scim/")
UNTIMED = (*FOR_PROGRAMS, "/healthz", "/readyz")  # they write UTC, or answer without a database


def whole_files(
    answer: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: read a file at once. In pieces, its thread would wait until the client has read most of them."""

    def door(request: HttpRequest) -> HttpResponse:
        response: Any = answer(request)  # the types of Django exclude a file here
        if isinstance(response, FileResponse):
            response.streaming_content = [response.getvalue()]
        return cast("HttpResponse", response)

    return door


def readers_time(
    answer: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: write the times of a page in the reader's zone and clock."""

    def door(request: HttpRequest) -> HttpResponse:
        if request.path.startswith(UNTIMED):
            return answer(request)
        token = display.HOURS.set(preferences.read_choice(request).clock)
        try:
            with timezone.override(preferences.read_reader_zone(request)):
                return answer(request)
        finally:
            display.HOURS.reset(token)

    return door


def unstored(
    answer: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: send `Cache-Control: no-store` unless the view set that header. Static files are served before it."""

    def door(request: HttpRequest) -> HttpResponse:
        response = answer(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return door


def pages(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware for pages, which are answered within a time limit. It leaves the answers to programs alone."""

    def door(request: HttpRequest) -> HttpResponse:
        if "\x00" in request.path_info:  # Postgres refuses such text
            raise Http404
        if request.path.startswith(FOR_PROGRAMS):  # limited only by the timeouts of its statements
            return answer(request)
        with (
            time_limits.limit_page_time(bounded=request.method in SAFE),
            connection.execute_wrapper(_execute_in_time),
        ):
            response = answer(request)
        if response.status_code == 405:
            context = {"layout": choose_layout(request), "page": _find_page_above(request)}
            page = render(request, "405.html", context, status=405)
            page["Allow"] = response.get("Allow", "")
            return page
        if request.method not in SAFE and _is_login_redirect(response):
            # The login leads back to the form's page: a GET must not send a form again.
            query = urlencode({"next": _find_page_above(request), "unsent": "1"}, safe="/")
            response["Location"] = f"{resolve_url(settings.LOGIN_URL)}?{query}"
        return response

    return door


class Refusals:
    """Middleware: answer with Django's page for 404 or 403 where a view lets a refusal of that status pass."""

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse]) -> None:
        self.answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request."""
        return self.answer(request)

    def process_exception(self, request: HttpRequest, exc: Exception) -> None:
        """Raise Django's error for a status that has a page. The API has answered its own errors before."""
        match exc:
            case RequestError(status=404):
                raise Http404 from exc
            case RequestError(status=403):
                raise PermissionDenied from exc


def _execute_in_time(
    execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    time_limits.check()
    return execute(sql, params, many, context)


def _is_login_redirect(response: HttpResponse) -> bool:
    location = urlsplit(response.get("Location", ""))
    is_login = location.path == resolve_url(settings.LOGIN_URL)
    return response.status_code == 302 and is_login and location.query.startswith("next=")


def _find_page_above(request: HttpRequest) -> str:
    """Return the path itself if a GET of it shows a page, else the nearest parent that does."""
    steps = request.path.strip("/").split("/")
    for count in range(len(steps), 0, -1):
        above = f"/{'/'.join(steps[:count])}/"
        if _is_page(above, request):
            return above
    return "/"


def _is_page(path: str, request: HttpRequest) -> bool:
    """Call the view without a user: it answers with 405 or redirects to the login."""
    try:
        match = resolve(path)
    except Resolver404:
        return False
    # They need a session: a GET of the first begins a sign-in, and the other shows no page without the step before.
    if match.route.startswith(("login/oidc/", "login/second/")):
        return False
    stranger = HttpRequest()
    stranger.method, stranger.path, stranger.user = "GET", path, AnonymousUser()
    stranger.META = request.META  # has the host, which the redirect names
    return _is_login_redirect(match.func(stranger, *match.args, **match.kwargs))
