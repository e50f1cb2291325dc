"""Serves what a browser needs to install the pages as an app: the manifest, the worker, and the page without a network.

None of them holds data, so they need no login.
"""

from typing import Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.views.decorators.http import require_safe

_ICONS: Final = (
    ("icon-192.png", "192x192", "any"),
    ("icon-512.png", "512x512", "any"),
    ("icon-maskable-512.png", "512x512", "maskable"),
)
_BLUE, _GROUND = "#1D5FBF", "#F6F7F9"


@require_safe
def manifest(request: HttpRequest) -> HttpResponse:
    """Describe the app to the browser."""
    about = {
        "name": "Signoff",
        "short_name": "Signoff",
        "description": "Decide what AI agents may do.",
        "id": "/",
        "start_url": reverse("home"),
        "scope": "/",
        "display": "standalone",
        "theme_color": _BLUE,
        "background_color": _GROUND,
        "icons": [
            {"src": static(f"img/{name}"), "sizes": sizes, "type": "image/png", "purpose": purpose}
            for name, sizes, purpose in _ICONS
        ],
        "shortcuts": [
            {"name": "Inbox", "url": reverse("inbox")},
            {"name": "Runs", "url": reverse("runs")},
        ],
    }
    return JsonResponse(about, content_type="application/manifest+json")


@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """Serve the service worker, whose scope is every page because its address is at the top."""
    return render(request, "worker.js", content_type="text/javascript")


@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    """Serve the page that the worker keeps for a browser without a network."""
    return render(request, "offline.html")
