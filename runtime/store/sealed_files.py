"""Writes and reads signed, compressed files in the object store.

A file is a gzip file with a signature in its head (`runtime.core.documents.signed_gzip`). The key is derived from that
of the journal (`runtime.keyring.signatures`), so the public key alone verifies a file. The signature covers name and
text, so no file passes for another one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runtime.core.documents import signed_gzip
from runtime.core.documents.signed_gzip import Head
from runtime.core.values.errors import Unreadable
from runtime.errors import ObjectStoreDown, Tampered, TooLarge
from runtime.keyring import purposes, signatures
from runtime.store import failpoints
from runtime.store.tables import objects

MAX_BYTES = 64 * 1024 * 1024  # uncompressed

_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A written file: the hash of its bytes, and their number."""

    digest: str
    size: int


def write(key: str, *, name: str, text: str) -> Written:
    """Write a file under a new key, and read it back. `text` is ASCII without line breaks, such as JSON.

    Raises TooLarge, or ObjectStoreDown if the store does not return the same bytes.
    """
    if len(text) > MAX_BYTES:
        raise TooLarge
    data = _sign_file(name, text)
    store = objects.store()
    store.put(key, data)
    failpoints.hit("written", "archive", 0)
    # The caller deletes the originals next, so a store that confirms a write and loses it must be noticed now.
    if store.get(key) != data:
        raise ObjectStoreDown(f"the object {key} was written, but cannot be read back")
    return Written(digest=signed_gzip.hash_body(data), size=len(data))


def read(key: str, *, name: str, digest: str) -> str:
    """Return the text of a file. Raises Tampered, KeyMissing or ObjectStoreDown."""
    data = objects.fetch(key)
    if signed_gzip.hash_body(data) != digest:
        raise Tampered(f"the object {key} does not match its digest")
    return open_file(data, name=name)


def is_sealed(data: bytes) -> bool:
    """Tell whether these are the bytes of such a file, by their beginning."""
    return data.startswith(_MAGIC)


def open_file(data: bytes, *, name: str | None = None) -> str:
    """Return the text of a file's bytes; without `name` its name may be any. Raises Tampered or KeyMissing."""
    head = _decode_head(data)
    if not _is_signed_by(signatures.read_public_key(head.key_id), head):
        raise Tampered("the signature of the file does not verify")
    if name is not None and head.name != name:
        raise Tampered(f"the file is {head.name!r}, not {name!r}")
    return _decode_text(data)


def open_with(data: bytes, keys: Iterable[bytes]) -> tuple[Head, str]:
    """Return head and text of a file that one of these public keys signed. Needs no key file. Raises Tampered."""
    head = _decode_head(data)
    if not any(_is_signed_by(key, head) for key in keys):
        raise Tampered(
            f"the file is not signed with a given key: it names key {head.key_id}:{head.public_key}"
        )
    return head, _decode_text(data)


def _sign_file(name: str, text: str) -> bytes:
    signer, body = signatures.read_current_signer(), signed_gzip.compress_body(text)
    head = Head(
        name=name,
        key_id=signer.key_id,
        public_key=signer.public_key,
        body=signed_gzip.hash_body(body),
    )
    return signed_gzip.encode(replace(head, signature=signer.sign(head.build_statement())), body)


def _is_signed_by(key: bytes, head: Head) -> bool:
    return signatures.is_signed_by(purposes.ARCHIVES, key, head.signature, head.build_statement())


def _decode_head(data: bytes) -> Head:
    try:
        return signed_gzip.decode_head(data)
    except Unreadable as exc:
        raise Tampered(str(exc)) from exc


def _decode_text(data: bytes) -> str:
    try:
        return signed_gzip.decompress_text(data, max_characters=MAX_BYTES)
    except Unreadable as exc:
        raise Tampered(str(exc)) from exc
