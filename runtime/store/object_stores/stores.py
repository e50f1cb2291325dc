"""Makes the object store of an address, for a process that answers people with reads that end in time.

A store that accepts a request and never answers would hold the thread of each reader for a minute. With BoundedReads a
reader waits SECONDS at most. Then the store counts as hanging: readers are refused at once, and every RETRY_SECONDS one
of them tries it again. A read that hangs keeps a thread of its own, of which there are at most READS.

The store in a local folder is shared by all processes of the installation.
"""

import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import MARKER, ObjectStore, require_key, require_size

PARTS = ".part"


class Folder:
    """Each object is a file, written under a temporary name and renamed once it is on the disk."""

    def __init__(self, folder: Path, *, marked: bool = True) -> None:
        self._folder = folder
        self._marked = marked

    def put(self, key: str, data: bytes) -> None:
        """Write an object. It and the entries of its folders are on the disk on return."""
        with self._reporting():
            self._write(self._path(key), data, Path.rename)

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object if it is `before` now. The folder is locked against others that swap."""
        path = self._path(key)
        with self._reporting(), suppress(FileExistsError, FileNotFoundError, IsADirectoryError):
            if before is None:
                self._write(path, data, _link)
                return True
            with _open_folder(path.parent) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX)
                if _read(path, key, None) == before:
                    self._write(path, data, Path.rename)
                    return True
        return False

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none."""
        missing = suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError)
        with self._reporting(), missing:
            return _read(self._path(key), key, max_bytes)
        self._require_marker()
        return None

    def delete(self, key: str) -> None:
        """Delete the object and what interrupted writes left of it."""
        path = self._path(key)
        with self._reporting():
            path.unlink(missing_ok=True)
            for temporary in path.parent.glob(f"{path.name}.*{PARTS}"):
                temporary.unlink(missing_ok=True)
        self._require_marker()

    def prepare(self) -> None:
        """Mark a folder that is new."""
        with self._reporting():
            self._make(self._folder)
            self.check()
            self._mark()

    def check(self) -> None:
        """Return if the folder is the store, or nothing was written to it yet."""
        with self._reporting():
            is_new = not any(self._folder.iterdir())
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
        if self._marked:
            with self._reporting():
                (self._folder / MARKER).stat()

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

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise ObjectStoreDown for an error of the operating system."""
        try:
            yield
        except OSError as exc:
            reason = exc.strerror or type(exc).__name__
            if str(exc.filename).endswith(MARKER):
                reason = f"it lacks the file {MARKER}"
            raise ObjectStoreDown(
                f"the object store {self._folder} cannot be used: {reason}"
            ) from exc


def _read(path: Path, key: str, max_bytes: int | None) -> bytes:
    # Without O_NONBLOCK a pipe would wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
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
def _open_folder(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _write(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    with _open_folder(folder) as handle:
        os.fsync(handle)


SCHEMES = ("s3://", "gs://", "az://")
READS = 4
SECONDS = 3.0  # for a read
TURN_SECONDS = 0.5  # to wait while READS other reads are under way
RETRY_SECONDS = 5.0


class BoundedReads:
    """The store, with bounded reads. Its other methods are those of the store."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        seconds: float = SECONDS,
        turn_seconds: float = TURN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.put, self.swap, self.delete = store.put, store.swap, store.delete
        self.prepare, self.check = store.prepare, store.check
        self._seconds, self._turn_seconds, self._clock = seconds, turn_seconds, clock
        self._turns = threading.BoundedSemaphore(READS)
        self._lock = threading.Lock()
        self._retry_at: float | None = None  # None while the store answers

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none. Raise ObjectStoreDown if the store does not answer in time."""
        self._check_answers()
        if not self._turns.acquire(timeout=self._turn_seconds):
            raise ObjectStoreDown(f"{READS} reads of the object store are under way")
        answer = Future[bytes | None]()
        # A daemon thread, so that the process can exit while the store hangs.
        threading.Thread(target=self._read, args=(key, max_bytes, answer), daemon=True).start()
        wait([answer], self._seconds)
        if not answer.done():
            self._retry_at = self._clock() + RETRY_SECONDS
            raise ObjectStoreDown(f"the object store did not answer within {self._seconds:g} s")
        self._retry_at = None
        return answer.result()

    def _check_answers(self) -> None:
        """Raise ObjectStoreDown while the store hangs, but let one reader per period try it."""
        with self._lock:
            now = self._clock()
            if self._retry_at is None:
                return
            if now < self._retry_at:
                raise ObjectStoreDown("the object store hangs")
            self._retry_at = now + RETRY_SECONDS

    def _read(self, key: str, max_bytes: int | None, answer: "Future[bytes | None]") -> None:
        try:
            answer.set_result(self._store.get(key, max_bytes=max_bytes))
        except BaseException as exc:  # the reader raises it
            answer.set_exception(exc)
        finally:
            self._turns.release()


def open_store(address: str, *, marked: bool = True) -> ObjectStore:
    """Return the store of a folder or a bucket. Raise ValueError if its configuration is incomplete.

    Without `marked` it is one that others write to as well, so it needs no object by which it is recognised.
    """
    if address.startswith("/"):
        return Folder(Path(address), marked=marked)
    # Most installations have a folder and need no client.
    from runtime.store.object_stores.bucket import Bucket

    return Bucket(address, marked=marked)
