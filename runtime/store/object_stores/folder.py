"""An object store in a local folder, which all processes of the installation share."""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import require_key, require_size

MARKER = (
    "signoff-object-store"  # a folder without it is not this store, such as an empty mount point
)
PARTS = ".part"


class Folder:
    """Each object is a file, written under a temporary name and renamed once it is on the disk."""

    def __init__(self, folder: Path, *, marked: bool = True) -> None:
        self._folder = folder
        self._marked = marked

    def put(self, key: str, data: bytes) -> None:
        """Write an object. It and the entries of its folders are on the disk on return."""
        try:
            self._write(self._path(key), data, Path.rename)
        except OSError as exc:
            raise self._down(exc) from exc

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object if it is `before` now. The folder is locked against others that swap."""
        path = self._path(key)
        try:
            if before is None:
                self._write(path, data, _link)
                return True
            with _locked(path.parent):
                if _read(path, key, None) != before:
                    return False
                self._write(path, data, Path.rename)
                return True
        except (FileExistsError, FileNotFoundError, IsADirectoryError):
            return False
        except OSError as exc:
            raise self._down(exc) from exc

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none."""
        try:
            return _read(self._path(key), key, max_bytes)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            self._require_marker()
            return None
        except OSError as exc:
            raise self._down(exc) from exc

    def delete(self, key: str) -> None:
        """Delete the object and what interrupted writes left of it."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
            for temporary in path.parent.glob(f"{path.name}.*{PARTS}"):
                temporary.unlink(missing_ok=True)
        except OSError as exc:
            raise self._down(exc) from exc
        self._require_marker()

    def prepare(self) -> None:
        """Mark a folder that is new."""
        try:
            self._make(self._folder)
            self.check()
            self._mark()
        except OSError as exc:
            raise self._down(exc) from exc

    def check(self) -> None:
        """Return if the folder is the store, or nothing was written to it yet."""
        try:
            is_new = not any(self._folder.iterdir())
        except OSError as exc:
            raise self._down(exc) from exc
        if not is_new:
            self._require_marker()

    def _path(self, key: str) -> Path:
        """Return the path of an object. Raise ValueError if a link is on it, which may lead out of the folder."""
        path = self._folder / require_key(key)
        for component in (path, *path.parents):
            if component == self._folder:
                break
            if component.is_symlink():
                raise ValueError(f"{key}: {component.name} is a link")
        return path

    def _write(self, path: Path, data: bytes, publish: Callable[[Path, Path], object]) -> None:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTS}")
        self._mark()
        self._make(path.parent)
        try:
            _write(temporary, data)
            publish(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync(path.parent)

    def _require_marker(self) -> None:
        """Raise ObjectStoreDown in another folder, where no object would be found."""
        if not self._marked:
            return
        try:
            (self._folder / MARKER).stat()
        except OSError as exc:
            raise self._down(exc) from exc

    def _mark(self) -> None:
        marker = self._folder / MARKER
        if self._marked and not marker.exists():
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
        reason = exc.strerror or type(exc).__name__
        if str(exc.filename).endswith(MARKER):
            reason = f"it lacks the file {MARKER}"
        return ObjectStoreDown(f"the object store {self._folder} cannot be used: {reason}")


def _read(path: Path, key: str, max_bytes: int | None) -> bytes:
    flags = (
        os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    )  # a pipe would wait for its writer
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"{key} is not a file")
        require_size(key, status.st_size, max_bytes)
        return file.read()


def _link(temporary: Path, path: Path) -> None:
    """Publish a temporary file unless the object exists. A rename would replace it."""
    path.hardlink_to(temporary)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
