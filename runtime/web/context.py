"""Adds the engaged kill switches to the context of all pages."""

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from runtime.control import kill_switches


def stops(request: HttpRequest) -> dict[str, Any]:
    """Add `stops`, read from the database when a template uses it."""
    return {"stops": SimpleLazyObject(kill_switches.active)}
