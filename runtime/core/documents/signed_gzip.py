"""Writes and reads a signed gzip file (RFC 1952), of which no byte can be changed.

The file is one member: ten fixed bytes, an extra field with one subfield `Ab`, then the compressed text with its
checksum. The subfield is the head, a JSON text with a name, a key id, a public key, the hash of all bytes after it, and
an Ed25519 signature over all of that. So a reader verifies the signature before it decompresses anything. `zcat` shows
the text, `head -c 600` the head.
"""

import hashlib
import json
import struct
import zlib
from dataclasses import asdict, dataclass

from runtime.core.values.errors import Unreadable
from runtime.core.values.json_values import encode_canonical

FORMAT = "signoff.signed"

_FIXED = bytes.fromhex("1f8b 08 04 00000000 02 ff")  # deflate, with an extra field, without a time
_SUBFIELD = b"Ab"
_SIZES = struct.Struct("<H2sH")  # of the extra field, then name and size of the subfield
_TRAILER = struct.Struct("<II")
_RAW, _GZIP = -15, 31  # window bits
_LEVEL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a file. `body` is the hash of the bytes after it; keys and signature are hex."""

    name: str
    key_id: str
    public_key: str
    body: str
    signature: str = ""

    def build_statement(self) -> str:
        """Return the signed text: the head without its signature, as canonical JSON (RFC 8785)."""
        return _encode_head({**asdict(self), "signature": ""})


def compress_body(text: str) -> bytes:
    """Compress an ASCII text to the part of a file that follows its head."""
    data, deflate = text.encode("ascii"), zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    compressed = deflate.compress(data) + deflate.flush()
    return compressed + _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


def hash_body(body: bytes) -> str:
    """Return the hash of a body, as its head has it."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def encode(head: Head, body: bytes) -> bytes:
    """Return the bytes of a file."""
    text = _encode_head(asdict(head)).encode("ascii")
    sizes = _SIZES.pack(len(text) + 4, _SUBFIELD, len(text))
    return _FIXED + sizes + text + body


def is_signed(data: bytes) -> bool:
    """Tell whether these are the bytes of such a file, by their beginning."""
    return data.startswith(_FIXED)


def decode_head(data: bytes) -> Head:
    """Return the head of a file if it fits the bytes. The caller verifies its signature. Raises Unreadable."""
    start = len(_FIXED) + _SIZES.size
    if not is_signed(data) or len(data) < start:
        raise Unreadable("it is no signed file")
    _, _, size = _SIZES.unpack_from(data, len(_FIXED))
    body = data[start + size :]
    try:
        document = json.loads(data[start : start + size])
        document.pop("format")
        head = Head(**{name: str(value) for name, value in document.items()})
        # Written again, it must be the same: a digit in upper case would mean the same signature.
        signature = bytes.fromhex(head.signature).hex()
        is_same = signature == head.signature and encode(head, body) == data
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as exc:
        raise Unreadable("the head of the file cannot be read") from exc
    if not is_same:
        raise Unreadable("the head of the file cannot be read")
    if hash_body(body) != head.body:
        raise Unreadable("the file was changed or cut off after its head")
    return head


def decompress_text(data: bytes, *, max_characters: int) -> str:
    """Decompress the text of a verified file, at most so many characters. Raises Unreadable."""
    inflate = zlib.decompressobj(_GZIP)
    try:
        text = inflate.decompress(data, max_characters + 1).decode("ascii")
    except (zlib.error, ValueError) as exc:
        raise Unreadable("the file cannot be decompressed") from exc
    if not inflate.eof or inflate.unused_data or len(text) > max_characters:
        raise Unreadable("the file is too large")
    return text


def _encode_head(document: dict[str, str]) -> str:
    return encode_canonical({"format": FORMAT, **document}).decode()
