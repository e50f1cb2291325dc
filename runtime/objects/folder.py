"""An object store in a local folder, which all processes of the installation share."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import require_key

MARKER = (
    "abeyance-object-store"  # a folder without it is not this store, such as an empty mount point
)
PARTS = ".part"


class Folder:
    """Each object is a file, written beside its place and renamed once it is on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, key: str, data: bytes) -> None:
        """Write an object. It and the entries of its folders are on the disk on return."""
        path = self._path(key)
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTS}")
        try:
            self._mark()
            self._make(path.parent)
            try:
                _write(part, data)
                part.rename(path)
            except OSError:
                part.unlink(missing_ok=True)
                raise
            _sync(path.parent)
        except OSError as exc:
            raise self._down(exc) from exc

    def get(self, key: str) -> bytes | None:
        """Return the object, None if there is none."""
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            self._require_marker()
            return None
        except OSError as exc:
            raise self._down(exc) from exc

    def delete(self, key: str) -> None:
        """Delete the object and the parts of it."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
            for part in path.parent.glob(f"{path.name}.*{PARTS}"):
                part.unlink(missing_ok=True)
        except OSError as exc:
            raise self._down(exc) from exc
        self._require_marker()

    def check(self) -> None:
        """Return if the folder is the store, or nothing was written to it yet."""
        try:
            is_new = not any(self._folder.iterdir())
        except OSError as exc:
            raise self._down(exc) from exc
        if not is_new:
            self._require_marker()

    def _path(self, key: str) -> Path:
        return self._folder / require_key(key)

    def _require_marker(self) -> None:
        """Raise ObjectStoreDown in another folder, where no object would be found."""
        try:
            (self._folder / MARKER).stat()
        except OSError as exc:
            raise self._down(exc) from exc

    def _mark(self) -> None:
        marker = self._folder / MARKER
        if not marker.exists():
            self._make(self._folder)
            with suppress(FileExistsError):
                marker.touch(mode=0o600, exist_ok=False)
            _sync(self._folder)

    def _make(self, folder: Path) -> None:
        """Make a folder with those above it, and sync the entry of each new one."""
        if folder.is_dir():
            return
        self._make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)

    def _down(self, exc: OSError) -> ObjectStoreDown:
        why = exc.strerror or type(exc).__name__
        if str(exc.filename).endswith(MARKER):
            why = f"it lacks the file {MARKER}"
        return ObjectStoreDown(f"the object store {self._folder} cannot be used: {why}")


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
