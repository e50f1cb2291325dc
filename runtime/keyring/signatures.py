"""Makes and verifies Ed25519 signatures and MACs (HMAC-SHA-256), and writes the text of a row under one of them.

It derives the keys that sign the files of the archive. The sweeper writes those files, and its folder has no private
key. HKDF-SHA-256 (RFC 5869) makes one of each key of the journal, so nothing new has to be set up, and the public key
of an earlier file can be derived after a rotation. Each process with the key of the journal can sign, as it can write
journals. The public key alone verifies.
"""

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct
from uuid import UUID

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from runtime.core.values.json_values import encode_canonical
from runtime.errors import KeyMissing
from runtime.keyring import files, purposes

_public = lru_cache(64)(Ed25519PublicKey.from_public_bytes)
SHORT = 32  # hex digits of a truncated MAC, HMAC-SHA-256-128 (RFC 4868)
_length = Struct(">Q").pack
_INFO = b"signoff.archives.ed25519.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """A MAC (hex) and the id of the key that made it."""

    mac: str
    key_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An Ed25519 signature and the id of the key that made it."""

    hex: str
    key_id: str


# Like `verify_signature`: purpose, signature, text.
Verifies = Callable[[str, Signature, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKeys:
    """Public keys by purpose and id, for a reader without the files of the installation that signed."""

    keys: Mapping[str, Mapping[str, bytes]]

    def verify(self, purpose: str, stored: Signature, text: str) -> bool:
        """Do what `verify_signature` does, with these keys. Raises KeyMissing."""
        key = self.keys.get(purpose, {}).get(stored.key_id)
        if key is None:
            raise KeyMissing(f"key {stored.key_id!r} of {purpose} is not among the given ones")
        return is_signed_by(purpose, key, stored.hex, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """The derived key with this id, which is that of the journal's key. `public_key` is hex."""

    key_id: str
    public_key: str
    private: Ed25519PrivateKey = field(repr=False)

    def sign(self, text: str) -> str:
        """Return the signature of a text, as hex."""
        return self.private.sign(label_text(purposes.ARCHIVES, text)).hex()


def sign(purpose: str, text: str) -> Signature:
    """Sign with the private key. A changed key file takes effect with the next signature.

    Raises ImproperlyConfigured in a process without the private key: such a process may not sign.
    """
    path = files.locate_private_key(purpose)
    key_id, private = _read_private_key(path, purpose, files.read_file_version(path))
    return Signature(hex=private.sign(label_text(purpose, text)).hex(), key_id=key_id)


def verify_signature(purpose: str, stored: Signature, text: str) -> bool:
    """Return whether the key of `stored` signed exactly this text. Raises KeyMissing for an unknown key id."""
    return _recently_signed_by(purpose, files.read_key(purpose, stored.key_id), stored.hex, text)


def is_signed_by(purpose: str, public_key: bytes, signature: str, text: str) -> bool:
    """Return whether the holder of this public key signed exactly this text."""
    try:
        _public(public_key).verify(bytes.fromhex(signature), label_text(purpose, text))
    except (InvalidSignature, ValueError):
        return False
    return True


# The answer depends on the arguments only, so it can be cached.
_recently_signed_by = lru_cache(512)(is_signed_by)


def label_text(purpose: str, text: str) -> bytes:
    """Label the text, so that a signature for one purpose does not verify for another."""
    return f"signoff.{purpose}.v1\n{text}".encode()


def read_current_signer() -> Signer:
    """Return the signer of new files."""
    return _derive_signer(*files.read_current_key(purposes.JOURNAL))


def list_public_keys() -> list[tuple[str, bytes]]:
    """Return the id and public key of each key of the journal, the current one first."""
    return [(key_id, read_public_key(key_id)) for key_id in files.list_key_ids(purposes.JOURNAL)]


def read_public_key(key_id: str) -> bytes:
    """Return the public key with this id. Raises KeyMissing."""
    key = files.read_key(purposes.JOURNAL, key_id)
    return bytes.fromhex(_derive_signer(key_id, key).public_key)


def seal(purpose: str, *parts: str, short: bool = False) -> Seal:
    """Sign `parts` with the current key of `purpose`. `short` truncates the MAC."""
    key_id, key = files.read_current_key(purpose)
    mac = _compute_mac(purpose, key, parts)
    return Seal(mac=mac[:SHORT] if short else mac, key_id=key_id)


def verify(purpose: str, stored: Seal, *parts: str, short: bool = False) -> bool:
    """Return whether `stored` is the MAC of exactly these parts, truncated if `short`.

    Raises KeyMissing for an unknown key id.
    """
    mac = _compute_mac(purpose, files.read_key(purpose, stored.key_id), parts)
    return _is_equal(mac[:SHORT] if short else mac, stored.mac)


def make_verifier(purpose: str, *first: str) -> Callable[..., bool]:
    """Return a function like `verify`, for many truncated MACs with the same first parts: `(mac, key id, *others)`."""
    begin, begun = _encode_label(purpose) + _frame_parts(first), dict[str, hmac.HMAC]()

    def verifies(mac: str, key_id: str, *parts: str) -> bool:
        if key_id not in begun:
            begun[key_id] = hmac.new(files.read_key(purpose, key_id), begin, "sha256")
        digest = begun[key_id].copy()
        digest.update(_frame_parts(parts))
        return _is_equal(digest.hexdigest()[:SHORT], mac)

    return verifies


def encode_row(kind: str, values: Mapping[str, object]) -> str:
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
    return encode_canonical(plain).decode()


@lru_cache(8)
def _read_private_key(
    path: Path, purpose: str, version: tuple[int, int, int] | None
) -> tuple[str, Ed25519PrivateKey]:
    """Read the id and the private key; `version` makes the cache miss when the file changes."""
    key_id, secret = next(iter(files.read(path, purpose).items()))
    return key_id, Ed25519PrivateKey.from_private_bytes(secret)


@lru_cache(64)
def _derive_signer(key_id: str, key: bytes) -> Signer:
    seed = HKDF(algorithm=SHA256(), length=files.KEY_BYTES, salt=None, info=_INFO).derive(key)
    private = Ed25519PrivateKey.from_private_bytes(seed)
    return Signer(
        key_id=key_id,
        public_key=private.public_key().public_bytes_raw().hex(),
        private=private,
    )


def _is_equal(mac: str, stored: str) -> bool:
    """Compare in constant time. As bytes, because a changed MAC may have characters that are not ASCII."""
    return hmac.compare_digest(mac.encode(), stored.encode("utf-8", "surrogatepass"))


def _compute_mac(purpose: str, key: bytes, parts: tuple[str, ...]) -> str:
    return hmac.digest(key, _encode_label(purpose) + _frame_parts(parts), "sha256").hex()


@cache
def _encode_label(purpose: str) -> bytes:
    return _frame_parts((f"signoff.{purpose}.v1",))


def _frame_parts(parts: tuple[str, ...]) -> bytes:
    """Write each part after its length, so that different lists of parts have different bytes."""
    return b"".join([_length(len(text)) + text for text in map(str.encode, parts)])
