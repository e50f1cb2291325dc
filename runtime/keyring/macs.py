"""Makes and verifies MACs (HMAC-SHA-256)."""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from runtime.keyring import files

SHORT = 32  # hex digits of a truncated MAC, HMAC-SHA-256-128 (RFC 4868)
_WHOLE = 64
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
    """Return whether `stored` is the MAC of exactly these parts; with `short`, also if it is truncated.

    Raises KeyMissing for an unknown key id.
    """
    key = files.key_of(purpose, stored.key_id)
    found = _mac(purpose, key, parts)
    return _equal(_like(stored.mac, found) if short else found, stored.mac)


def verifier(purpose: str, *first: str) -> Callable[..., bool]:
    """Return a function like `verify`, for many MACs with the same first parts: `(mac, key id, *other parts)`.

    It also verifies truncated MACs.
    """
    begun: dict[str, hmac.HMAC] = {}

    def verifies(mac: str, key_id: str, *parts: str) -> bool:
        if key_id not in begun:
            begun[key_id] = _fed(_begun(purpose, files.key_of(purpose, key_id)), first)
        found = _fed(begun[key_id], parts).hexdigest()
        return _equal(_like(mac, found), mac)

    return verifies


def _like(stored: str, mac: str) -> str:
    """Truncate the MAC unless the stored one is whole."""
    return mac if len(stored) == _WHOLE else mac[:SHORT]


def _equal(mac: str, stored: str) -> bool:
    """Compare in constant time. As bytes, because a changed MAC may have characters that are not ASCII."""
    return hmac.compare_digest(mac.encode(), stored.encode("utf-8", "surrogatepass"))


def _mac(purpose: str, key: bytes, parts: tuple[str, ...]) -> str:
    return _fed(_begun(purpose, key), parts).hexdigest()


def _fed(begun: hmac.HMAC, parts: tuple[str, ...]) -> hmac.HMAC:
    """Add the parts, each after its length, so that different lists of parts have different bytes."""
    mac = begun.copy()
    mac.update(b"".join([_length(len(text)) + text for text in map(str.encode, parts)]))
    return mac


# Cached: creating and keying an HMAC takes OpenSSL longer than the MAC of a short text.
@lru_cache(64)
def _begun(purpose: str, key: bytes) -> hmac.HMAC:
    """Begin a MAC with this key and the label of the purpose. Callers copy it."""
    return _fed(hmac.new(key, digestmod=hashlib.sha256), (f"abeyance.{purpose}.v1",))
