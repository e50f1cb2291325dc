"""Adds the engaged kill switches to the context of all pages."""

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from runtime.control.kill_switches import active


def kill_switches(request: HttpRequest) -> dict[str, Any]:
    """Add `kill_switches`, read from the database when a template uses it."""
    return {"kill_switches": SimpleLazyObject(active)}
