"""A template filter that shows a file: a picture as one, a PDF as a link.

A stored file comes from a route of its own, which checks who may read its run, and its bytes. One inside another value
has no address: its checked bytes stand in the page.
"""

import re
from base64 import b64encode
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runtime.core.run.events import BlobRef
from runtime.core.values.files import MEDIA_TYPES, file_of

register = template.Library()

_BEGINNING = re.compile(r'\{"media_type":"([a-z/]+)","base64":"')


@register.filter
def as_file(value: Any) -> SafeString | str:
    """Show a picture or a PDF; empty for a value that is no file."""
    if isinstance(value, BlobRef):
        match = _BEGINNING.match(value.preview)
        if match is None or match[1] not in MEDIA_TYPES:
            return ""
        return _show(match[1], value.size * 3 // 4, reverse("file", args=[value.digest]))
    file = file_of(value)
    if file is None:
        return ""
    data = f"data:{file.media_type};base64,{b64encode(file.data).decode()}"
    return _show(file.media_type, len(file.data), data)


def _show(media_type: str, size: int, address: str) -> SafeString:
    kind, words = media_type.partition("/")[2], f"{-(-size // 1000)} kB"
    if media_type.startswith("image/"):
        return format_html(
            '<img class="file" src="{}" alt="Picture ({}, {})" loading="lazy">',
            address,
            kind,
            words,
        )
    return format_html(
        '<a class="file btn" href="{}" download="file.{}">PDF, {}</a>', address, kind, words
    )
