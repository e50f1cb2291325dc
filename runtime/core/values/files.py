"""Files as JSON values: a picture or a PDF that a tool takes or returns, with its type and its bytes in base64.

A page shows it from a route of its own, so only types that start no program in a browser are files: no SVG, no HTML.
The bytes must begin as their type does, or a page of HTML could pass for a picture.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "application/pdf": re.compile(rb"%PDF-"),
}
MEDIA_TYPES = tuple(_SIGNATURES)
MAX_FILE = 3 * 1024 * 1024  # bytes; in base64 they fit a result
_FIELDS = {"media_type", "base64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValue:
    """A file whose bytes begin as its type does."""

    media_type: str
    data: bytes

    @property
    def is_picture(self) -> bool:
        """Whether a page shows it, and a model may look at it."""
        return self.media_type.startswith("image/")

    @property
    def suffix(self) -> str:
        """The end of its name."""
        return self.media_type.partition("/")[2]


def is_file(value: Any) -> bool:
    """Tell whether a JSON value has the form of a file. Its bytes may still be other ones."""
    return (
        isinstance(value, dict)
        and value.keys() == _FIELDS
        and value["media_type"] in MEDIA_TYPES
        and isinstance(value["base64"], str)
    )


def file_of(value: Any) -> FileValue | None:
    """Return the file of a JSON value; None if it is none, is too large, or has bytes of another type."""
    if not is_file(value) or len(value["base64"]) > 4 * MAX_FILE // 3 + 4:
        return None
    try:
        data = base64.b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError):
        return None
    is_genuine = _SIGNATURES[value["media_type"]].match(data) and len(data) <= MAX_FILE
    return FileValue(media_type=value["media_type"], data=data) if is_genuine else None


def file_value(media_type: str, data: bytes) -> dict[str, str]:
    """Return the JSON value of a file. Raises ValueError if a page would not show it."""
    value = {"media_type": media_type, "base64": base64.b64encode(data).decode()}
    if file_of(value) is None:
        raise ValueError(
            f"no file of at most {MAX_FILE} bytes that begins as {media_type} does; "
            f"types are {', '.join(MEDIA_TYPES)}"
        )
    return value
