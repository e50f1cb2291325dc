"""Keys by purpose and id, kept in files outside the database, and the MACs made with them.

One file per purpose in KEYS_DIR, one `id:hex` per line. The first key signs, all of them verify,
so a key is rotated by putting a new line on top.
"""

import hashlib
import hmac
import os
import secrets
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from runtime.errors import KeyMissing

JOURNAL = "journal"
CONTINUATION = "continuation"
SECRETS = "secrets"
PURPOSES = (JOURNAL, CONTINUATION, SECRETS)

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A MAC (hex) and the id of the key that made it."""

    mac: str
    key_id: str


def seal(purpose: str, *parts: str) -> Seal:
    """Sign `parts` with the current key of `purpose`."""
    key_id, key = next(iter(_ring(purpose).items()))
    return Seal(mac=_mac(purpose, key, parts), key_id=key_id)


def verify(purpose: str, stored: Seal, *parts: str) -> bool:
    """Whether `stored` was made of exactly these parts. Raises KeyMissing for an unknown key id."""
    key = key_of(purpose, stored.key_id)
    return hmac.compare_digest(_mac(purpose, key, parts), stored.mac)


def current_key(purpose: str) -> tuple[str, bytes]:
    """The id and the key that new documents of `purpose` are made with."""
    return next(iter(_ring(purpose).items()))


def key_of(purpose: str, key_id: str) -> bytes:
    """The key of that id. Raises KeyMissing."""
    found = _ring(purpose).get(key_id)
    if found is None:
        _ring.cache_clear()  # it may have been added since this process started
        found = _ring(purpose).get(key_id)
    if found is None:
        raise KeyMissing(f"key {key_id!r} for {purpose} is not in the ring")
    return found


def ensure(purpose: str) -> Path:
    """Make the purpose's first key if it has none; the file is 0600 and appears whole or not at all."""
    path = _path(purpose)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent)  # 0600 from the start
    with os.fdopen(handle, "w") as file:
        file.write(f"{secrets.token_hex(4)}:{secrets.token_hex(KEY_BYTES)}\n")
    try:
        os.link(name, path)
    except FileExistsError:
        pass  # another process was first; its key is the key
    finally:
        Path(name).unlink()
    return path


@lru_cache
def _ring(purpose: str) -> dict[str, bytes]:
    path = _path(purpose)
    try:
        lines = path.read_text().split()
    except OSError as exc:
        raise ImproperlyConfigured(
            f"cannot read the {purpose} key in {path}: {exc.strerror}. `manage.py prepare` makes it."
        ) from exc
    ring = dict(_parse(line, path) for line in lines)
    if not ring:
        raise ImproperlyConfigured(f"{path} holds no key")
    return ring


def _parse(line: str, path: Path) -> tuple[str, bytes]:
    key_id, _, text = line.partition(":")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not key_id or len(key) < KEY_BYTES:
        raise ImproperlyConfigured(f"{path}: a line is not `id:hex` of {KEY_BYTES} bytes")
    return key_id, key


def _mac(purpose: str, key: bytes, parts: tuple[str, ...]) -> str:
    """Each part is preceded by its length, so that no two lists of parts have the same bytes."""
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in (f"abeyance.{purpose}.v1", *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _path(purpose: str) -> Path:
    return Path(settings.KEYS_DIR) / f"{purpose}.keys"
