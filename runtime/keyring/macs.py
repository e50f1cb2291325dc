"""Makes and verifies MACs (HMAC-SHA-256)."""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from runtime.keyring import files

if TYPE_CHECKING:
    from hashlib import _Hash

    _Begun = tuple[_Hash, _Hash]

BLOCK = 64  # bytes that SHA-256 takes at a time
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_length = Struct(">Q").pack
SHORT = 32  # hex digits of a truncated MAC, HMAC-SHA-256-128 (RFC 4868)
_WHOLE = 64


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


def verify(purpose: str, stored: Seal, *parts: str) -> bool:
    """Return whether `stored` is the MAC of exactly these parts. Raises KeyMissing for an unknown key id."""
    key = files.key_of(purpose, stored.key_id)
    return hmac.compare_digest(_mac(purpose, key, parts), stored.mac)


def verifier(purpose: str, *first: str) -> Callable[..., bool]:
    """Return a function like `verify`, for many MACs with the same first parts: `(mac, key id, *other parts)`.

    It also verifies truncated MACs.
    """
    begun: dict[str, _Begun] = {}
    text = _measured(first)

    def begin(key_id: str) -> "_Begun":
        inner, outer = _begun(purpose, files.key_of(purpose, key_id))
        inner = inner.copy()
        inner.update(text)
        return begun.setdefault(key_id, (inner, outer))

    def verifies(mac: str, key_id: str, *parts: str) -> bool:
        found = _of(begun.get(key_id) or begin(key_id), parts)
        return hmac.compare_digest(found if len(mac) == _WHOLE else found[:SHORT], mac)

    return verifies


def _mac(purpose: str, key: bytes, parts: tuple[str, ...]) -> str:
    return _of(_begun(purpose, key), parts)


def _of(begun: "_Begun", parts: tuple[str, ...]) -> str:
    inner, outer = begun
    inner, outer = inner.copy(), outer.copy()
    inner.update(b"".join([_length(len(text)) + text for text in map(str.encode, parts)]))
    outer.update(inner.digest())
    return outer.hexdigest()


@lru_cache(64)
def _begun(purpose: str, key: bytes) -> "_Begun":
    """Begin a MAC with this key and the label of the purpose: HMAC as RFC 2104 defines it. Callers copy it.

    An object of the library `hmac` is the same, but to copy and end it takes as long as the MAC of a short text.
    """
    block = (hashlib.sha256(key).digest() if len(key) > BLOCK else key).ljust(BLOCK, b"\0")
    inner = hashlib.sha256(block.translate(_INNER))
    inner.update(_measured((f"abeyance.{purpose}.v1",)))
    return inner, hashlib.sha256(block.translate(_OUTER))


def _measured(parts: tuple[str, ...]) -> bytes:
    """Join the parts, each after its length, so that different lists of parts have different bytes."""
    return b"".join([_length(len(text)) + text for text in map(str.encode, parts)])
