"""Reads the query parameters of pages."""

from uuid import UUID

from django.http import Http404, HttpRequest

from runtime.control import access
from runtime.reads.filters import MAX_SEARCH


def is_htmx(request: HttpRequest) -> bool:
    """Tell whether an open page requests only its changing part."""
    return "HX-Request" in request.headers


def cursor(request: HttpRequest) -> UUID | None:
    """Return the cursor of the list. Anything but an id is answered with 404."""
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc


def page_number(request: HttpRequest) -> int:
    """Return the page number, from 1. Anything else is answered with 404."""
    text = request.GET.get("page", "1")
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text)):
        raise Http404
    return int(text)


def choice(request: HttpRequest, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed values, empty if it is missing. Other values are answered with 404."""
    text = request.GET.get(name, "")
    if text and text not in allowed:
        raise Http404
    return text


def search(request: HttpRequest) -> str:
    """Return the text of the search. Raise InvalidInput naming `q`."""
    return access.validate_text("q", request.GET.get("q", "").strip(), MAX_SEARCH)
