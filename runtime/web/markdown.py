"""Renders Markdown of agents: every letter is shown, links name their target and lead nowhere, images are not loaded.

The HTML is built from a fixed set of elements with escaped text. What Markdown would hide, such as definitions of
links, entities, comments and too deep quotes, makes the text come out as it was written.
"""

import re
from collections.abc import Iterator, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.token import Token

from runtime.core.values.texts import is_visible
from runtime.reads import time_limits
from runtime.web.display import excerpt_visible

_PARSER = MarkdownIt("commonmark", {"html": False, "breaks": True}).disable(
    ["autolink", "entity", "escape", "html_block", "html_inline", "reference"]
)
_PARSER.validateLink = lambda url: True  # type: ignore[method-assign]  # a target is shown, and leads nowhere
_PARSER.normalizeLink = lambda url: url  # type: ignore[method-assign]
_MARKS = str.maketrans("", "", "*_`#>-+=~[]()<!\"'.:|\\ \t\n")
_STRONG_SIGNS = re.compile(  # bounded, because agents write the text
    r"^#{1,6} \S|^```|\*\*\S[^*\n]{0,200}\*\*(?!\w)|\[[^\[\]\n]{1,200}\]\([^)\s]{1,500}\)",
    re.MULTILINE,
)
_INSIDE_WORD = re.compile(r"\w\*+\w")
_ELEMENTS = {
    "paragraph": "p",
    "blockquote": "blockquote",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "em": "em",
    "strong": "strong",
}
MAX_MARKDOWN = 10_000  # characters; a longer text is shown as it was written


def has_markdown(text: str) -> bool:
    """Tell whether a text has headings, code, bold words or links."""
    return len(text) <= MAX_MARKDOWN and bool(_STRONG_SIGNS.search(text))


def render_markdown(text: str) -> SafeString | str:
    """Render a text; empty if it would not show all of its characters, in their order, or the page took too long."""
    if time_limits.is_used_up() or len(text) > MAX_MARKDOWN or _INSIDE_WORD.search(text):
        return ""
    if not all(is_visible(char) or char == "\t" for char in text):
        return ""  # an invisible character is marked where it stands
    tokens = _PARSER.parse(text)
    if _strip_markdown("".join(_collect_texts(tokens))) != _strip_markdown(text):
        return ""
    return format_html_join("", "{}", ((piece,) for piece in _render_pieces(tokens)))


def _strip_markdown(text: str) -> str:
    """Return the text without blanks and the signs of Markdown."""
    return text.translate(_MARKS)


def _collect_texts(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the texts that are shown, in the order of the source."""
    targets: list[str] = []
    for token in tokens:
        match token.type:
            case "inline":
                yield from _collect_texts(token.children or [])
            case "list_item_open" | "fence":
                yield f"{token.info}{token.content}"
            case "link_open":
                targets.append(_target(token))
            case "link_close":
                yield targets.pop()
            case "image":
                yield f"{token.content}{_target(token)}"
            case _:
                yield token.content


def _render_pieces(tokens: Sequence[Token]) -> Iterator[SafeString]:
    targets: list[str] = []
    for token in tokens:
        name, _, end = token.type.rpartition("_")
        if token.hidden:  # a paragraph of a list without blank lines
            continue
        match token.type:
            case "inline":
                yield from _render_pieces(token.children or [])
            case "text":
                yield excerpt_visible(token.content)
            case "softbreak" | "hardbreak":
                yield SafeString("<br>")
            case "code_inline":
                yield format_html("<code>{}</code>", excerpt_visible(token.content))
            case "code_block" | "fence":
                info = (
                    format_html('<span class="meta">{}</span>\n', token.info) if token.info else ""
                )
                yield format_html("<pre>{}{}</pre>", info, excerpt_visible(token.content))
            case "hr":
                yield SafeString("<hr>")
            case "heading_open":
                yield SafeString('<p class="heading"><strong>')
            case "heading_close":
                yield SafeString("</strong></p>")
            case "list_item_open" if token.info:
                yield format_html('<li value="{}">', token.info)
            case "link_open":
                targets.append(_target(token))
                yield SafeString('<span class="link">')
            case "link_close":
                yield format_html("</span> ⟨{}⟩", excerpt_visible(targets.pop()))
            case "image":
                words = excerpt_visible(token.content), excerpt_visible(_target(token))
                yield format_html('<span class="meta">image, not loaded:</span> {} ⟨{}⟩', *words)
            case _ if end == "open":
                yield format_html("<{}>", _ELEMENTS[name])
            case _:
                yield format_html("</{}>", _ELEMENTS[name])


def _target(token: Token) -> str:
    """Return where a link or an image leads, with its title."""
    attrs = token.attrs
    title = f" {attrs['title']}" if attrs.get("title") else ""
    return f"{attrs.get('href', attrs.get('src', ''))}{title}"
