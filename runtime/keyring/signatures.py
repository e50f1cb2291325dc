"""Makes and verifies Ed25519 signatures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from runtime.errors import KeyMissing
from runtime.keyring import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An Ed25519 signature and the id of the key that made it."""

    hex: str
    key_id: str


# Like `verify_signature`: purpose, signature, text.
Verifies = Callable[[str, Signature, str], bool]


def sign(purpose: str, text: str) -> Signature:
    """Sign with the private key. A changed key file takes effect with the next signature.

    Raises ImproperlyConfigured in a process without the private key: such a process may not sign.
    """
    path = files.private_path(purpose)
    key_id, private = _private(path, purpose, files.version(path))
    return Signature(hex=private.sign(labelled(purpose, text)).hex(), key_id=key_id)


def verify_signature(purpose: str, stored: Signature, text: str) -> bool:
    """Return whether the key of `stored` signed exactly this text. Raises KeyMissing for an unknown key id."""
    return _recently_signed_by(purpose, files.key_of(purpose, stored.key_id), stored.hex, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKeys:
    """Public keys by purpose and id, for a reader without the files of the installation that signed."""

    keys: Mapping[str, Mapping[str, bytes]]

    def verify(self, purpose: str, stored: Signature, text: str) -> bool:
        """Do what `verify_signature` does, with these keys. Raises KeyMissing."""
        key = self.keys.get(purpose, {}).get(stored.key_id)
        if key is None:
            raise KeyMissing(f"key {stored.key_id!r} of {purpose} is not among the given ones")
        return signed_by(purpose, key, stored.hex, text)


def signed_by(purpose: str, public_key: bytes, signature: str, text: str) -> bool:
    """Return whether the holder of this public key signed exactly this text."""
    try:
        _public(public_key).verify(bytes.fromhex(signature), labelled(purpose, text))
    except (InvalidSignature, ValueError):
        return False
    return True


def labelled(purpose: str, text: str) -> bytes:
    """Label the text, so that a signature for one purpose does not verify for another."""
    return f"signoff.{purpose}.v1\n{text}".encode()


_public = lru_cache(64)(Ed25519PublicKey.from_public_bytes)


# The answer depends on the arguments only, so it can be cached.
_recently_signed_by = lru_cache(512)(signed_by)


@lru_cache(8)
def _private(
    path: Path, purpose: str, version: tuple[int, int, int] | None
) -> tuple[str, Ed25519PrivateKey]:
    """Read the id and the private key; `version` makes the cache miss when the file changes."""
    key_id, secret = next(iter(files.read(path, purpose).items()))
    return key_id, Ed25519PrivateKey.from_private_bytes(secret)
