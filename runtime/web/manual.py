"""Shows the documentation of this release, so that its pages can link to it without the internet."""

import posixpath
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

DOCS = Path(__file__).parents[2] / "docs"
START = "README"


@require_safe
@login_required
def manual(request: HttpRequest, page: str = START) -> HttpResponse:
    """Show one page of the documentation."""
    if page not in _pages():
        raise Http404
    title, text = _rendered(page)
    context = {"section": "manual", "title": title, "text": text, "is_start": page == START}
    return render(request, "manual.html", context)


@lru_cache(1)
def _pages() -> frozenset[str]:
    paths = (path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md"))
    return frozenset(path.as_posix() for path in paths)


@lru_cache(64)
def _rendered(page: str) -> tuple[str, SafeString]:
    """Return the title of a page, and its text as HTML."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    for token in tokens:
        for inner in token.children or ():
            _lead(inner, page)
    title = next((token.content for token in tokens if token.type == "inline"), page)
    html = markdown.renderer.render(tokens, markdown.options, {})
    return title, mark_safe(html)  # noqa: S308 - a file of this release, without raw HTML


def _lead(token: Token, page: str) -> None:
    """Let a link between pages lead to the page here. Pictures are left out, other links lead nowhere."""
    if token.type == "image":
        token.type, token.tag, token.children = "text", "", None
    if token.type != "link_open":
        return
    target = urlsplit(str(token.attrGet("href") or ""))
    if target.scheme:
        token.attrSet("rel", "noreferrer")
        return
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.path))
    name = path.removesuffix(".md") if target.path else page
    if name in _pages():
        token.attrSet("href", reverse("manual_page", args=[name]))
    else:
        token.attrs = {}
