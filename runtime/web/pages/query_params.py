"""The parts of a request and its query that these pages read."""

from uuid import UUID

from django.http import Http404, HttpRequest

from runtime.control import access
from runtime.queries.filters import MAX_SEARCH


def is_htmx(request: HttpRequest) -> bool:
    """Whether a page that is open already asks for the part of it that changes."""
    return "HX-Request" in request.headers


def cursor(request: HttpRequest) -> UUID | None:
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc


def page_number(request: HttpRequest) -> int:
    """From 1; anything that is no number is no page."""
    text = request.GET.get("page", "1")
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text)):
        raise Http404
    return int(text)


def choice(request: HttpRequest, name: str, allowed: tuple[str, ...]) -> str:
    """One of a few words, empty if it is not given; any other is no page."""
    text = request.GET.get(name, "")
    if text and text not in allowed:
        raise Http404
    return text


def search(request: HttpRequest) -> str:
    """What was typed into the search. Raises InvalidInput naming `q`."""
    return access.text("q", request.GET.get("q", "").strip(), MAX_SEARCH)
