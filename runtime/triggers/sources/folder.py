"""A watched folder on the disk: lists its files, and reads one. It follows no symbolic link below an allowed folder."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

from runtime.core.digest import is_text
from runtime.triggers.sources import contents
from runtime.triggers.sources.contents import MAX_CONTENT
from runtime.triggers.sources.keeping import Refused

MAX_LISTED = 10_000  # files of a folder that one look sees
MAX_FILE = 64 * 1024 * 1024  # bytes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1024 * 1024
_UNFINISHED = (".part", ".tmp", ".crdownload", "~")


class Changed(Exception):
    """The file changed or went while it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file as it is listed. `stamp` changes when a program writes to it, replaces it or changes its rights."""

    name: str
    raw: str  # as the system has it
    stamp: str
    at: int  # its time of change, in nanoseconds
    size: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The hash of a file, and its text if that is small and UTF-8."""

    digest: str
    text: str | None


@contextmanager
def opened(folder: str, root: Path) -> Iterator[int]:
    """Open a folder, which is `root` or below it. Raises OSError, also if a part of the path is a symbolic link."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in PurePath(folder).relative_to(root).parts:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def listed(descriptor: int) -> list[File]:
    """List files, except folders and unfinished ones, the oldest first: MAX_LISTED, and one if there are more.

    Raises OSError.
    """
    with os.scandir(descriptor) as entries:
        seen = islice((entry for entry in entries if not _is_passed(entry)), MAX_LISTED + 1)
        found = [_file(entry) for entry in seen]
    return sorted((one for one in found if one), key=lambda one: (one.at, one.name))


def read(descriptor: int, file: File) -> Content:
    """Read a file that was listed. Raise Refused, or Changed if it is another one now."""
    if stat.S_ISLNK(file.mode):
        raise Refused("it is a symbolic link")
    if not stat.S_ISREG(file.mode):
        raise Refused("it is no regular file")
    if not is_text(file.raw):
        raise Refused("its name is not UTF-8")
    if file.size > MAX_FILE:
        raise Refused(f"it has {file.size} bytes, at most {MAX_FILE}")
    try:
        inner = os.open(file.raw, _FILE, dir_fd=descriptor)
    except FileNotFoundError as exc:
        raise Changed from exc
    except OSError as exc:
        raise Refused(f"it cannot be read: {exc.strerror}") from exc
    with os.fdopen(inner, "rb") as stream:
        if _stamp(os.fstat(inner)) != file.stamp:
            raise Changed
        digest, text = hashlib.sha256(), b""
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            text = chunk  # the whole of a small file
        if _stamp(os.fstat(inner)) != file.stamp:
            raise Changed
    return Content(
        digest=digest.hexdigest(),
        text=contents.text_of(text) if file.size <= MAX_CONTENT else None,
    )


def _is_passed(entry: os.DirEntry[str]) -> bool:
    unfinished = entry.name.startswith(".") or entry.name.endswith(_UNFINISHED)
    return unfinished or entry.is_dir(follow_symlinks=False)


def _file(entry: os.DirEntry[str]) -> File | None:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:  # it went
        return None
    return File(
        name=os.fsencode(entry.name).decode("utf-8", "backslashreplace"),
        raw=entry.name,
        stamp=_stamp(found),
        at=found.st_mtime_ns,
        size=found.st_size,
        mode=found.st_mode,
    )


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
