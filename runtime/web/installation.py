"""Serves what belongs to the installation, not to a run: its health, what a browser installs as an app, its manual.

The health endpoints and the app hold no data, so they need no login.
"""

import posixpath
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt

from runtime.reads import workers
from runtime.upkeep import startup
from runtime.web.requests import users

DOCS = Path(__file__).parents[2] / "docs"
START = "README"

_BEAT = timedelta(seconds=10)


@require_safe
def answer_health(request: HttpRequest) -> HttpResponse:
    """Answer 200 without any check."""
    return JsonResponse({"status": "ok"})


@require_safe
def answer_readiness(request: HttpRequest) -> HttpResponse:
    """Answer 200 if every check holds, else 503. The body lists the checks, and warnings about safety."""
    checks: dict[str, bool] = {}
    for name, check in _CHECKS.items():
        # Without a database the other checks fail too, and each would wait for its timeout.
        checks[name] = checks.get("database", True) and _is_passed(check)
    warnings = [
        name for name, warns in _WARNINGS.items() if checks["database"] and _is_passed(warns)
    ]
    if checks["migrations"]:
        warnings += [f"{name}_late" for name in workers.list_late_loops()]
    body = {"checks": checks, "warnings": warnings}
    return JsonResponse(body, status=200 if all(checks.values()) else 503)


def _is_passed(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except DatabaseError:
        return False


def _can_query_database() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


# Warnings of this web process; docs/how-to/monitor.md explains them.
_WARNINGS: dict[str, Callable[[], bool]] = {
    "superuser": startup.is_superuser,
    "no_ledger": lambda: settings.SIGNOFF_LEDGER is None,
}

_CHECKS: dict[str, Callable[[], bool]] = {
    "database": _can_query_database,
    "migrations": lambda: startup.count_missing_migrations() == 0,
    "worker": lambda: workers.has_live_worker(within=_BEAT),
    "partitions": workers.has_month,
}


_ICONS: Final = (
    ("icon-192.png", "192x192", "any"),
    ("icon-512.png", "512x512", "any"),
    ("icon-maskable-512.png", "512x512", "maskable"),
)
_BLUE, _GROUND = "#1D5FBF", "#F6F7F9"


@require_safe
def serve_manifest(request: HttpRequest) -> HttpResponse:
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
def serve_worker(request: HttpRequest) -> HttpResponse:
    """Serve the service worker, whose scope is every page because its address is at the top."""
    return render(request, "worker.js", content_type="text/javascript")


@require_safe
def serve_offline_page(request: HttpRequest) -> HttpResponse:
    """Serve the page that the worker keeps for a browser without a network."""
    return render(request, "offline.html")


@users.guard_page
def show_manual(request: HttpRequest, page: str = START) -> HttpResponse:
    """Show one page of the documentation."""
    if page not in _list_pages():
        raise Http404
    title, text = _render_page(page)
    context = {"section": "manual", "title": title, "text": text, "is_start": page == START}
    return render(request, "manual.html", context)


@lru_cache(1)
def _list_pages() -> frozenset[str]:
    paths = (path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md"))
    return frozenset(path.as_posix() for path in paths)


@lru_cache(64)
def _render_page(page: str) -> tuple[str, SafeString]:
    """Return the title of a page, and its text as HTML."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    for inner in (inner for token in tokens for inner in token.children or ()):
        if inner.type == "image":  # pictures are left out
            inner.type, inner.tag, inner.children = "text", "", None
        if inner.type != "link_open":
            continue
        target = urlsplit(str(inner.attrGet("href") or ""))
        if target.scheme:
            inner.attrSet("rel", "noreferrer")
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.path))
        name = path.removesuffix(".md") if target.path else page
        if (
            name in _list_pages()
        ):  # a link between pages leads to the page here, others lead nowhere
            inner.attrSet("href", reverse("manual_page", args=[name]))
        else:
            inner.attrs = {}
    title = next((token.content for token in tokens if token.type == "inline"), page)
    html = markdown.renderer.render(tokens, markdown.options, {})
    return title, mark_safe(html)  # noqa: S308 - a file of this release, without raw HTML
