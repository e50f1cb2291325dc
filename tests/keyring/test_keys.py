"""Keys on disk: modes, rotation, foreign ids, broken files."""

import hmac
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from pytest_django import Settings

from runtime.errors import KeyMissing
from runtime.keyring import files, purposes, sealing, signatures

NEW = f"new:{'ab' * 32}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    settings.KEYS_DIR = tmp_path / "keys"
    files._read_ring.cache_clear()
    yield tmp_path / "keys"
    files._read_ring.cache_clear()


@pytest.mark.parametrize(
    ("purpose", "names"),
    [("journal", ["journal.keys"]), ("decisions", ["decisions.private", "decisions.public"])],
)
def test_keys_are_made_once_for_their_owner(folder: Path, purpose: str, names: list[str]) -> None:
    assert files.ensure(purpose) == folder / names[-1]
    found = sorted(folder.iterdir())
    assert [file.name for file in found] == names
    assert {file.stat().st_mode & 0o777 for file in found} == {0o600}
    before = [file.read_text() for file in found]
    files.ensure(purpose)
    assert [file.read_text() for file in found] == before


def test_a_key_that_another_process_made_first_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = files._write_temporary

    def lose(path: Path, lines: list[str]) -> Path:
        path.parent.mkdir()
        path.write_text(NEW)
        return write(path, lines)

    monkeypatch.setattr(files, "_write_temporary", lose)
    assert files.ensure("journal").read_text() == NEW
    assert [file.name for file in folder.iterdir()] == ["journal.keys"]


@pytest.mark.parametrize("length", [32, 64, 65])
def test_a_mac_is_that_of_the_library(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    key = os.urandom(length)
    monkeypatch.setattr(files, "read_current_key", lambda _: ("a key", key))
    for parts in ((), ("",), ("é", "1"), ("x" * 1000, "", "y")):
        texts = [part.encode() for part in ("signoff.journal.v1", *parts)]
        data = b"".join([len(text).to_bytes(8, "big") + text for text in texts])
        assert signatures.seal("journal", *parts).mac == hmac.digest(key, data, "sha256").hex()


def test_only_the_very_parts_that_were_sealed_verify() -> None:
    files.ensure("journal")
    old = signatures.seal("journal", "run", "1", "body")
    files.rotate("journal")
    new = signatures.seal("journal", "run", "1", "body")
    verifies = signatures.make_verifier("journal", "run")
    for seal in (old, new):
        assert signatures.verify("journal", seal, "run", "1", "body")
        assert not signatures.verify("journal", seal, "run", "1", "body ")
        assert not signatures.verify("journal", seal, "run1", "", "body")
        short = seal.mac[: signatures.SHORT]
        assert verifies(short, seal.key_id, "1", "body")
        assert not verifies(short, seal.key_id, "1b", "ody")
        assert not signatures.make_verifier("journal", "other")(short, seal.key_id, "1", "body")
    assert not verifies(new.mac[: signatures.SHORT], old.key_id, "1", "body")
    with pytest.raises(KeyMissing):
        verifies(new.mac, "unknown", "1", "body")


def test_a_key_added_while_the_process_runs_is_found() -> None:
    path = files.ensure("journal")
    before = path.read_text()
    path.write_text(NEW + before)
    new = signatures.seal("journal", "x")
    assert new.key_id == "new"
    path.write_text(before)
    files._read_ring.cache_clear()
    with pytest.raises(KeyMissing, match="new"):
        signatures.verify("journal", new, "x")
    path.write_text(before + NEW)
    assert signatures.verify("journal", new, "x")


@pytest.mark.parametrize("text", ["", "nothing", "id:xyz", "id:abcd", f"id:{'ab' * 33}"])
def test_a_broken_key_file_is_named(folder: Path, text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"manage\.py prepare"):
        signatures.seal("journal", "x")
    files.ensure("decisions")
    (folder / "journal.keys").write_text(text)
    (folder / "decisions.private").write_text(text)
    with pytest.raises(ImproperlyConfigured, match=r"journal\.keys"):
        signatures.seal("journal", "x")
    with pytest.raises(ImproperlyConfigured, match=r"decisions\.private"):
        signatures.sign("decisions", "x")


# Keys for parties that verify and must not sign


def test_a_signature_is_of_exactly_this_text_for_this_purpose() -> None:
    files.ensure("decisions")
    signature = signatures.sign("decisions", "text")
    assert signatures.verify_signature("decisions", signature, "text")
    assert not signatures.verify_signature("decisions", signature, "text ")
    public = Ed25519PublicKey.from_public_bytes(files.read_key("decisions", signature.key_id))
    public.verify(bytes.fromhex(signature.hex), b"signoff.decisions.v1\ntext")


def test_a_start_that_died_between_the_two_files_is_finished(folder: Path) -> None:
    path = files.ensure("decisions")
    old = signatures.sign("decisions", "x")
    path.unlink()
    files.ensure("decisions")
    (folder / "decisions.private").write_text(NEW)
    files.ensure("decisions")
    new = signatures.sign("decisions", "x")
    assert (new.key_id, len(path.read_text().split())) == ("new", 2)
    assert signatures.verify_signature("decisions", new, "x")
    assert signatures.verify_signature("decisions", old, "x")


def test_a_folder_with_public_keys_alone_gets_no_private_one(folder: Path) -> None:
    files.ensure("decisions")
    signatures.sign("decisions", "x")
    (folder / "decisions.private").unlink()
    files.ensure("decisions")
    assert [child.name for child in folder.iterdir()] == ["decisions.public"]
    with pytest.raises(ImproperlyConfigured, match=r"decisions\.private"):
        signatures.sign("decisions", "x")


@pytest.mark.parametrize("purpose", ["journal", "decisions"])
def test_a_rotated_key_signs_and_the_ones_before_verify(folder: Path, purpose: str) -> None:
    path = files.ensure(purpose)
    ids = [path.read_text().partition(":")[0]] + [files.rotate(purpose) for _ in range(2)]
    assert [line.partition(":")[0] for line in path.read_text().split()] == ids[::-1]
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    if purpose == "journal":
        assert signatures.seal(purpose, "x").key_id == ids[-1]
    else:
        assert signatures.sign(purpose, "x").key_id == ids[-1]
        assert len((folder / "decisions.private").read_text().split()) == 1


def test_a_private_key_counts_from_the_moment_of_its_file(folder: Path) -> None:
    files.ensure("decisions")
    private = folder / "decisions.private"
    before, first = private.read_text(), signatures.sign("decisions", "x")
    files.rotate("decisions")
    second = signatures.sign("decisions", "x")
    private.write_text(before)
    os.utime(private, ns=(1, 1))
    assert signatures.sign("decisions", "x") == first != second


def test_a_command_rotates(capsys: pytest.CaptureFixture[str]) -> None:
    path = files.ensure("decisions")
    call_command("rotate_key", "decisions")
    newest = path.read_text().partition(":")[0]
    assert f"key {newest} is the newest" in capsys.readouterr().out
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("rotate_key", "everything")


def test_a_command_prints_public_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for purpose in ("journal", "decisions"):
        files.ensure(purpose)
        files.rotate(purpose)
    call_command("public_keys", "decisions")
    assert capsys.readouterr().out == (folder / "decisions.public").read_text()
    call_command("public_keys", "archives")
    printed = [line.partition(":")[::2] for line in capsys.readouterr().out.split()]
    assert printed == [(key_id, key.hex()) for key_id, key in signatures.list_public_keys()]
    assert [key_id for key_id, _ in printed] == list(files.list_key_ids("journal"))


def test_workers_get_only_verifying_keys(folder: Path, tmp_path: Path, settings: Settings) -> None:
    settings.WORKER_KEYS_DIR = tmp_path / "worker-keys"
    for purpose in purposes.PURPOSES:
        files.ensure(purpose)
    files.share_keys()
    for _ in range(2):
        shared = {files.name_shared_file(purpose) for purpose in purposes.PURPOSES}
        assert {file.name for file in settings.WORKER_KEYS_DIR.iterdir()} == shared
        for name in shared:
            assert (settings.WORKER_KEYS_DIR / name).read_text() == (folder / name).read_text()
        for purpose in purposes.PURPOSES:
            files.rotate(purpose)
    files.check(signing=True)
    signer = signatures.read_current_signer().public_key
    settings.KEYS_DIR = settings.WORKER_KEYS_DIR
    files._read_ring.cache_clear()
    files.check(signing=False)
    assert signatures.read_current_signer().public_key == signer, (
        "the sweeper signs files of the archive"
    )
    with pytest.raises(ImproperlyConfigured, match=r"decisions\.private"):
        files.check(signing=True)


def test_a_sealed_value_is_bound_to_its_tool_and_argument() -> None:
    files.ensure(purposes.SECRETS)
    held, whole = sealing.seal_arg("send", "text", "psst"), sealing.seal_args("send", {"to": "ada"})
    assert sealing.is_held("send", "text", held)
    assert not sealing.is_held("send", "note", held)
    assert not sealing.is_held("post", "text", held)
    assert sealing.open_args("send", whole) == {"to": "ada"}
    assert sealing.open_args("post", whole) == whole
