"""Writes and reads signed, compressed files in the object store.

A file is gzip (RFC 1952) of two lines: a JSON header with a name, a key id and a MAC, and the text. The MAC is made
with the keys of the journal and covers name and text, so no file passes for another one.
"""

import gzip
import hashlib
import json
import zlib
from dataclasses import dataclass

from runtime.errors import ObjectStoreDown, Tampered, TooLarge
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore
from runtime.store import failpoints

FORMAT = "abeyance.sealed"
MAX_BYTES = 64 * 1024 * 1024  # uncompressed

_MAGIC = b"\x1f\x8b"
_MAX_HEADER = 1_024
_GZIP = 31  # the window bits that make zlib read a gzip header


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A written file: the hash of its bytes, and their number."""

    digest: str
    size: int


def write(place: str, *, name: str, text: str) -> Written:
    """Write a file under a new key, and read it back. `text` is ASCII without line breaks, such as JSON.

    Raises TooLarge, or ObjectStoreDown if the store does not return the same bytes.
    """
    if len(text) > MAX_BYTES:
        raise TooLarge
    data = _sealed(name, text)
    store = _store()
    store.put(place, data)
    failpoints.hit("written", "archive", 0)
    if store.get(place) != data:
        raise ObjectStoreDown(f"the object {place} was written, but cannot be read back")
    return Written(digest=_digest(data), size=len(data))


def read(place: str, *, name: str, digest: str) -> str:
    """Return the text of a file. Raises Tampered, KeyMissing or ObjectStoreDown."""
    data = _store().get(place)
    if data is None:
        raise Tampered(f"the object {place} is missing")
    if _digest(data) != digest:
        raise Tampered(f"the object {place} does not match its digest")
    return opened(data, name=name)


def is_sealed(data: bytes) -> bool:
    """Tell whether these are the bytes of such a file, by their beginning."""
    return data.startswith(_MAGIC)


def opened(data: bytes, *, name: str | None = None) -> str:
    """Return the text of a file's bytes; without `name` its name may be any. Raises Tampered or KeyMissing."""
    header, text = _lines(data)
    found, key_id, mac = (header.get(field) for field in ("name", "key_id", "mac"))
    if not (isinstance(found, str) and isinstance(key_id, str) and isinstance(mac, str)):
        raise Tampered("the header of the file cannot be read")
    if name is not None and found != name:
        raise Tampered(f"the file is {found!r}, not {name!r}")
    if not macs.verify(purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *_parts(found, text)):
        raise Tampered("the file does not verify")
    return text


def _sealed(name: str, text: str) -> bytes:
    seal = macs.seal(purposes.JOURNAL, *_parts(name, text))
    header = {"format": FORMAT, "name": name, "key_id": seal.key_id, "mac": seal.mac}
    return gzip.compress(f"{json.dumps(header)}\n{text}".encode("ascii"), mtime=0)


def _lines(data: bytes) -> tuple[dict[str, object], str]:
    inflate = zlib.decompressobj(_GZIP)
    try:
        plain = inflate.decompress(data, MAX_BYTES + _MAX_HEADER)
        first, _, text = plain.decode("ascii").partition("\n")
        header = json.loads(first)
    except (zlib.error, ValueError, RecursionError) as exc:
        raise Tampered("it is no sealed file") from exc
    if not inflate.eof or not isinstance(header, dict) or header.get("format") != FORMAT:
        raise Tampered("it is no sealed file, or is too large")
    return header, text


def _parts(name: str, text: str) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with the run's id, so neither passes for the other."""
    return ("sealed file", name, text)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _store() -> ObjectStore:
    store = wiring.objects()
    if store is None:
        raise ObjectStoreDown("ABEYANCE_OBJECT_STORE is not set in this process")
    return store
