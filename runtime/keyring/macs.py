"""Makes and verifies MACs (HMAC-SHA-256).

Writes the text of a row that is signed, or under a MAC.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from struct import Struct
from uuid import UUID

from runtime.core.values.json_values import canonical
from runtime.keyring import files

SHORT = 32  # hex digits of a truncated MAC, HMAC-SHA-256-128 (RFC 4868)
_length = Struct(">Q").pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A MAC (hex) and the id of the key that made it."""

    mac: str
    key_id: str


def seal(purpose: str, *parts: str, short: bool = False) -> Seal:
    """Sign `parts` with the current key of `purpose`. `short` truncates the MAC."""
    key_id, key = files.current_key(purpose)
    mac = _mac(purpose, key, parts)
    return Seal(mac=mac[:SHORT] if short else mac, key_id=key_id)


def verify(purpose: str, stored: Seal, *parts: str, short: bool = False) -> bool:
    """Return whether `stored` is the MAC of exactly these parts, truncated if `short`.

    Raises KeyMissing for an unknown key id.
    """
    mac = _mac(purpose, files.key_of(purpose, stored.key_id), parts)
    return _equal(mac[:SHORT] if short else mac, stored.mac)


def verifier(purpose: str, *first: str) -> Callable[..., bool]:
    """Return a function like `verify`, for many truncated MACs with the same first parts: `(mac, key id, *others)`."""
    begin, keys = _label(purpose) + _framed(first), dict[str, bytes]()

    def verifies(mac: str, key_id: str, *parts: str) -> bool:
        key = keys.get(key_id)
        if key is None:
            key = keys[key_id] = files.key_of(purpose, key_id)
        digest = hmac.digest(key, begin + _framed(parts), "sha256")
        return _equal(digest.hex()[:SHORT], mac)

    return verifies


def _equal(mac: str, stored: str) -> bool:
    """Compare in constant time. As bytes, because a changed MAC may have characters that are not ASCII."""
    return hmac.compare_digest(mac.encode(), stored.encode("utf-8", "surrogatepass"))


def _mac(purpose: str, key: bytes, parts: tuple[str, ...]) -> str:
    return hmac.digest(key, _label(purpose) + _framed(parts), "sha256").hex()


@cache
def _label(purpose: str) -> bytes:
    return _framed((f"signoff.{purpose}.v1",))


def _framed(parts: tuple[str, ...]) -> bytes:
    """Write each part after its length, so that different lists of parts have different bytes."""
    return b"".join([_length(len(text)) + text for text in map(str.encode, parts)])


def row_text(kind: str, values: Mapping[str, object]) -> str:
    """Return these values as canonical JSON (RFC 8785). `kind` differs per table, so no row passes for another's.

    Raise ValueError, TypeError or AttributeError for values of other types.
    """
    plain: dict[str, object] = {"kind": kind}
    for name, value in values.items():
        match value:
            case datetime():
                plain[name] = value.astimezone(UTC).isoformat()
            case UUID():
                plain[name] = str(value)
            case _:
                plain[name] = value
    return canonical(plain).decode()
