"""Reads, creates and rotates the key files.

Each purpose has one file in KEYS_DIR with one `id:hex` per line. New documents use the first key; every key
verifies. To rotate a key, put a new line on top.

If a process that verifies must not be able to sign, the purpose has two files (Ed25519, RFC 8032). Every process reads
the public keys in `<purpose>.public`; only signing processes read the private key in `<purpose>.private`.
"""

import os
import secrets
import tempfile
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from runtime.errors import KeyMissing
from runtime.keyring.purposes import PURPOSES, SIGNED

KEY_BYTES = 32


def read_current_key(purpose: str) -> tuple[str, bytes]:
    """Return the id and the key for new documents of `purpose`."""
    return next(iter(_read_ring(purpose).items()))


def list_key_ids(purpose: str) -> tuple[str, ...]:
    """Return the id of every key of `purpose`, the current one first."""
    return tuple(_read_ring(purpose))


def read_key(purpose: str, key_id: str) -> bytes:
    """Return the key with this id. Raises KeyMissing."""
    key = _read_ring(purpose).get(key_id)
    if key is None:
        _read_ring.cache_clear()  # an admin may have added it since this process started
        key = _read_ring(purpose).get(key_id)
    if key is None:
        raise KeyMissing(f"key {key_id!r} for {purpose} is not in the ring")
    return key


def list_import_keys(purpose: str) -> list[tuple[str, bytes]]:
    """Return the ids and public keys of the installations that IMPORT_KEYS lists. Two keys may have one id.

    An item of IMPORT_KEYS is a key file, or a folder of `*.public` files. Raises ImproperlyConfigured.
    """
    files: list[Path] = []
    for entry in settings.IMPORT_KEYS:
        path = Path(entry)
        files += sorted(path.glob("*.public")) if path.is_dir() else [path]
    return [_parse(line, file) for file in files for line in _read_lines(file, purpose)]


def name_shared_file(purpose: str) -> str:
    """Return the name of the file that every process needs; for a purpose with signatures, of the public keys."""
    return f"{purpose}.{'public' if purpose in SIGNED else 'keys'}"


def ensure(purpose: str) -> Path:
    """Create the first key of a purpose that has none. Files get mode 0600 and are written atomically.

    A folder with public keys only belongs to a process that verifies, so it gets no private key.
    """
    path = _locate_ring(purpose)
    if purpose not in SIGNED:
        _create(path, [_make_key_line()])
        return path
    private = locate_private_key(purpose)
    if not path.exists():
        _create(private, [_make_key_line()])
    if private.exists():
        # Add its public key to the ring, in case a process died between the two files.
        line = _derive_public_line(_read_lines(private, purpose)[0], private)
        _create(path, [line])
        lines = _read_lines(path, purpose)
        if line not in lines:
            _replace(path, [line, *lines])
            _read_ring.cache_clear()
    return path


def rotate(purpose: str) -> str:
    """Put a new key on top and return its id; older keys only verify. Two rotations must not run at once."""
    line = _make_key_line()
    path = _locate_ring(purpose)
    if purpose not in SIGNED:
        _replace(path, [line, *_read_lines(path, purpose)])
        share_keys()
    else:
        # Publish the public key before a process signs with the private one, which replaces the old one.
        _replace(path, [_derive_public_line(line, path), *_read_lines(path, purpose)])
        share_keys()
        _replace(locate_private_key(purpose), [line])
    _read_ring.cache_clear()
    return line.partition(":")[0]


def share_keys() -> None:
    """Copy the shared key files to WORKER_KEYS_DIR, the folder of processes that only verify, if it is set."""
    if settings.WORKER_KEYS_DIR is None:
        return
    for purpose in PURPOSES:
        lines = _read_lines(_locate_ring(purpose), purpose)
        _replace(Path(settings.WORKER_KEYS_DIR) / name_shared_file(purpose), lines)


def check(*, signing: bool) -> None:
    """Raise ImproperlyConfigured unless every key file can be read; with `signing`, also the private keys."""
    for purpose in PURPOSES:
        _read_ring(purpose)
        if signing and purpose in SIGNED:
            read(locate_private_key(purpose), purpose)


def _make_key_line() -> str:
    return f"{secrets.token_hex(4)}:{secrets.token_hex(KEY_BYTES)}"


def _derive_public_line(private_line: str, path: Path) -> str:
    key_id, secret = _parse(private_line, path)
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return f"{key_id}:{public.hex()}"


def _create(path: Path, lines: list[str]) -> None:
    """Create a key file. If another process created it first, keep that file."""
    if path.exists():
        return
    temporary = _write_temporary(path, lines)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _replace(path: Path, lines: list[str]) -> None:
    _write_temporary(path, lines).replace(path)


def _write_temporary(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent)  # 0600 from the start
    with os.fdopen(handle, "w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


@lru_cache
def _read_ring(purpose: str) -> dict[str, bytes]:
    return read(_locate_ring(purpose), purpose)


def read_file_version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file is replaced or written; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read(path: Path, purpose: str) -> dict[str, bytes]:
    """Read the keys of a file by their ids, in the order of the file. Raises ImproperlyConfigured."""
    ring = dict(_parse(line, path) for line in _read_lines(path, purpose))
    if not ring:
        raise ImproperlyConfigured(f"{path} holds no key: put back the copy of a backup")
    return ring


def _read_lines(path: Path, purpose: str) -> list[str]:
    try:
        return path.read_text().split()
    except OSError as exc:
        raise ImproperlyConfigured(
            f"cannot read the {purpose} key in {path}: {exc.strerror}. `manage.py prepare` makes it."
        ) from exc
    except UnicodeDecodeError as exc:
        raise ImproperlyConfigured(f"{path} is not text: put back the copy of a backup") from exc


def _parse(line: str, path: Path) -> tuple[str, bytes]:
    key_id, _, text = line.partition(":")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not key_id or len(key) != KEY_BYTES:
        raise ImproperlyConfigured(
            f"{path}: a line is not `id:hex` of {KEY_BYTES} bytes: put back the copy of a backup"
        )
    return key_id, key


def _locate_ring(purpose: str) -> Path:
    return Path(settings.KEYS_DIR) / name_shared_file(purpose)


def locate_private_key(purpose: str) -> Path:
    """Return the path of the private key."""
    return _locate_private_key(settings.KEYS_DIR, purpose)


@lru_cache  # a path costs as much as a signature
def _locate_private_key(folder: Path | str, purpose: str) -> Path:
    return Path(folder) / f"{purpose}.private"
