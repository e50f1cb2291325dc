"""Files in the object store: signed with a key that is derived from the journal's, and closed to every change."""

import gzip
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pytest_django import Settings

from runtime.core.documents import signed_gzip
from runtime.core.values.errors import Unreadable
from runtime.errors import KeyMissing, Tampered
from runtime.keyring import files, signatures
from runtime.ports.objects import ObjectStore
from runtime.store import sealed_files

TEXT = json.dumps({"a run": ["entry"] * 9})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Settings) -> Iterator[None]:
    settings.KEYS_DIR = tmp_path / "keys"
    files._read_ring.cache_clear()
    files.ensure("journal")
    yield
    files._read_ring.cache_clear()


@pytest.fixture
def data(object_store: ObjectStore) -> bytes:
    sealed_files.write("runs/1", name="run 1", text=TEXT)
    return object_store.get("runs/1") or b""


def keys() -> list[bytes]:
    return [key for _, key in signatures.list_public_keys()]


def test_the_signing_key_is_derived_by_rfc_5869(data: bytes) -> None:
    key_id, key = files.read_current_key("journal")
    extracted = hmac.digest(bytes(32), key, "sha256")
    seed = hmac.digest(extracted, b"signoff.archives.ed25519.v1\x01", "sha256")
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    assert signatures.list_public_keys()[0] == (key_id, public)
    head, text = sealed_files.open_with(data, [public])
    assert (head.name, head.key_id, head.public_key, text) == ("run 1", key_id, public.hex(), TEXT)
    signed = b"signoff.archives.v1\n" + head.build_statement().encode()
    private.public_key().verify(bytes.fromhex(head.signature), signed)
    assert gzip.decompress(data).decode() == TEXT, "any reader of gzip shows the text"


def test_a_change_of_any_byte_is_refused(data: bytes) -> None:
    assert sealed_files.open_file(data, name="run 1") == TEXT
    given = keys()
    changed = [
        data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in (0x01, 0x20)  # the second one changes a letter to upper case
    ]
    cut = [data[:at] for at in range(len(data))]
    for other in (*changed, *cut, data + b"\0", data + data):
        for open_file in (sealed_files.open_file, lambda file: sealed_files.open_with(file, given)):
            refused(open_file, other)


def test_a_text_is_whole_and_alone_and_not_too_large(data: bytes) -> None:
    most = len(TEXT)
    assert signed_gzip.decompress_text(data, max_characters=most) == TEXT
    not_ascii = gzip.compress("é".encode())
    for other in (data[:-1], data + b"\0", data[:-20] + b"x" * 20, not_ascii):
        with pytest.raises(Unreadable):
            signed_gzip.decompress_text(other, max_characters=most)
    with pytest.raises(Unreadable, match="too large"):
        signed_gzip.decompress_text(data, max_characters=most - 1)


def refused(open_file: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises((Tampered, KeyMissing)):
        open_file(data)


def test_another_name_or_key_is_refused(data: bytes) -> None:
    with pytest.raises(Tampered, match="'run 1', not 'run 2'"):
        sealed_files.open_file(data, name="run 2")
    attacker = signatures._derive_signer("own", bytes(32))
    head, body = signed_gzip.decode_head(data), signed_gzip.compress_body(TEXT)
    for key_id, public_key in (
        (head.key_id, head.public_key),
        (head.key_id, attacker.public_key),
        (attacker.key_id, attacker.public_key),
    ):
        said = replace(head, key_id=key_id, public_key=public_key)
        forged = signed_gzip.encode(
            replace(said, signature=attacker.sign(said.build_statement())), body
        )
        with pytest.raises(Tampered, match="not signed with a given key"):
            sealed_files.open_with(forged, keys())
        refused(sealed_files.open_file, forged)


def test_a_file_verifies_after_its_key_was_rotated(data: bytes) -> None:
    first = keys()
    files.rotate("journal")
    assert keys()[1:] == first != keys()[:1]
    assert sealed_files.open_file(data) == TEXT
    assert sealed_files.open_with(data, keys())[1] == TEXT


def test_a_file_without_a_signature_is_refused() -> None:
    for other in (gzip.compress(TEXT.encode()), b"PK\x03\x04"):
        with pytest.raises(Tampered, match="it is no signed file"):
            sealed_files.open_file(other)
        with pytest.raises(Tampered, match="it is no signed file"):
            sealed_files.open_with(other, keys())
