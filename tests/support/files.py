"""Small files for tests."""

from base64 import b64decode

# One red point.
PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFAAH/q842iQAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n%%EOF\n"
