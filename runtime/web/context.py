"""What every page says of the installation: which agents are stopped."""

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from runtime.control import kill_switches


def stops(request: HttpRequest) -> dict[str, Any]:
    """`stops` for templates, read from the database by the page that uses it."""
    return {"stops": SimpleLazyObject(kill_switches.active)}
