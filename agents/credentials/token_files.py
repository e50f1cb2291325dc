"""Keeps the refresh token that a token server gives in place of the one it was sent (RFC 6749, section 6).

Some servers take each refresh token once. So the workers of one file system refresh one after the other, each with a
lock next to the file. Before a worker sends the token, it reserves room for the next one in a second file; when the
answer has one, that file takes the place of the first. A token is lost if the worker dies between the two, or if the
answer does: then the server refuses the old one, and a person must get a new one.
"""

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.errors import NotDone
from runtime.core.values.enums import FailureCause

ROOM_BYTES = 8192  # reserved for the next token
POLL_SECONDS = 0.05  # between two tries to get the lock
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """A refresh token in a file that this worker has locked. `room` is None if it cannot write the file."""

    name: str
    path: Path
    room: int | None

    @property
    def advice(self) -> str:
        """Say what else a person must do if the server refuses the token."""
        if self.room is not None:
            return ""
        return (
            f" The workers cannot write into {self.path.parent}: let them, if the server replaces refresh tokens at"
            " each use, for otherwise the next one is lost too."
        )

    def keep(self, sent: str, token: str) -> None:
        """Write the token over the one that was sent. Log it if that fails; keep the token that a person wrote."""
        try:
            if self.room is None:
                raise PermissionError
            _write(self.room, token.encode())
            if self.path.read_text().strip() == sent:
                _name_sibling(self.path, "new").replace(self.path)
                _sync(self.path.parent)
        except (OSError, UnicodeError) as exc:
            log.error(
                "Credential %s: the server replaced its refresh token, and %s cannot be written: %s."
                " The next refresh will be refused.",
                self.name,
                self.path,
                type(exc).__name__,
            )


@dataclass(frozen=True, slots=True)
class Unkept:
    """A refresh token in a variable of the environment, which no worker can change."""

    name: str
    variable: str

    @property
    def advice(self) -> str:
        """Say what else a person must do if the server refuses the token."""
        return (
            " If the server replaces refresh tokens at each use, give the tool a File that the workers can write: they"
            f" cannot change {self.variable}."
        )

    def keep(self, sent: str, token: str) -> None:
        """Log that the token is lost."""
        log.error(
            "Credential %s: the server replaced its refresh token, and the variable %s cannot be changed."
            " Use a File that the workers can write, or the next refresh may be refused.",
            self.name,
            self.variable,
        )


@contextmanager
def locked(name: str, path: str, seconds: float) -> Iterator[Kept]:
    """Lock a file of a refresh token for this block. Raise NotDone if it cannot be had within `seconds`."""
    token_path = Path(os.path.realpath(path))
    lock = room = None
    try:
        try:
            lock = _open_private(_name_sibling(token_path, "lock"))
            _wait(lock, name, time.monotonic() + seconds)
            room = _open_private(_name_sibling(token_path, "new"))
            os.posix_fallocate(room, 0, ROOM_BYTES)
        except OSError as exc:
            if exc.errno not in _UNWRITABLE:
                reason = f"no file can be written beside {token_path}: {type(exc).__name__}"
                raise NotDone(reason, cause=FailureCause.SETUP) from None
        yield Kept(name, token_path, room)
    finally:
        if room is not None:
            _name_sibling(token_path, "new").unlink(missing_ok=True)
        for descriptor in (room, lock):
            if descriptor is not None:
                os.close(descriptor)


def _name_sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}")


def _open_private(path: Path) -> int:
    """Open a file that only this account may read."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _write(room: int, text: bytes) -> None:
    with open(room, "r+b", closefd=False) as file:
        file.write(text)  # over the reserved bytes, which are given back afterwards
        file.truncate()
        file.flush()
        os.fsync(room)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wait(lock: int, name: str, until: float) -> None:
    """Take the lock. Raise NotDone if another process still has it at `until`.

    `flock` takes no timeout, and a signal cannot end it in a thread. So the lock is tried again after a pause.
    """
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                reason = f"another call refreshes the credential {name}, and takes too long"
                raise NotDone(reason, cause=FailureCause.TIME) from None
        time.sleep(POLL_SECONDS)
