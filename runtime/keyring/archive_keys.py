"""Derives the Ed25519 keys that sign the files of the archive from the keys of the journal.

The sweeper writes these files, and its folder has no private key. HKDF-SHA-256 (RFC 5869) makes one of each key of the
journal, so nothing new has to be set up, and the public key of an earlier file can be derived after a rotation. Each
process with the key of the journal can sign, as it can write journals. The public key alone verifies.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from runtime.keyring import files, purposes, signatures

_INFO = b"signoff.archives.ed25519.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """The derived key with this id, which is that of the journal's key. `public_key` is hex."""

    key_id: str
    public_key: str
    private: Ed25519PrivateKey = field(repr=False)

    def sign(self, text: str) -> str:
        """Return the signature of a text, as hex."""
        return self.private.sign(signatures.labelled(purposes.ARCHIVES, text)).hex()


def current() -> Signer:
    """Return the signer of new files."""
    return _signer(*files.current_key(purposes.JOURNAL))


def public_keys() -> list[tuple[str, bytes]]:
    """Return the id and public key of each key of the journal, the current one first."""
    return [(key_id, public_key(key_id)) for key_id in files.ids(purposes.JOURNAL)]


def public_key(key_id: str) -> bytes:
    """Return the public key with this id. Raises KeyMissing."""
    key = files.key_of(purposes.JOURNAL, key_id)
    return bytes.fromhex(_signer(key_id, key).public_key)


@lru_cache(64)
def _signer(key_id: str, key: bytes) -> Signer:
    seed = HKDF(algorithm=SHA256(), length=files.KEY_BYTES, salt=None, info=_INFO).derive(key)
    private = Ed25519PrivateKey.from_private_bytes(seed)
    return Signer(
        key_id=key_id,
        public_key=private.public_key().public_bytes_raw().hex(),
        private=private,
    )
