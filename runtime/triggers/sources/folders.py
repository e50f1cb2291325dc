"""Watches folders: each file that is complete becomes an event of its trigger, once by its name and content.

The sweeper lists a folder instead of being told by the system: that works on network disks too, and Postgres has the
files that it saw, so another sweeper continues. A file is complete if two looks find it unchanged. No symbolic link
below an allowed folder is followed.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from uuid import UUID

from django.conf import settings

from runtime.core.values.json_values import is_text
from runtime.errors import InvalidInput
from runtime.store import failpoints, pool
from runtime.store.tables import trigger_sources
from runtime.triggers.event_definition import MAX_LOCATION, EventDefinition
from runtime.triggers.sources import reading

MAX_LISTED = 10_000  # files of a folder that one look sees
MAX_FILE = 64 * 1024 * 1024  # bytes
SETTLED = timedelta(seconds=2)  # between the two looks
TAKEN = 50  # files that one transaction takes

LINKED = "a part of its path is a symbolic link, or no folder"
CROWDED = f"more than {MAX_LISTED} files are there, so some are not seen: move those away that started their run"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1024 * 1024
_UNFINISHED = (".part", ".tmp", ".crdownload", "~")


class FileChanged(Exception):
    """The file changed or was deleted while it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file as it is listed. `stamp` changes when a program writes to it, replaces it or changes its rights."""

    name: str
    raw: str  # as the system has it
    stamp: str
    at: int  # its time of change, in nanoseconds
    size: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContent:
    """The hash of a file, and its text if that is small and UTF-8."""

    digest: str
    text: str | None


def find_root(folder: str) -> Path | None:
    """Return the allowed folder that holds this one, None without one."""
    roots: tuple[Path, ...] = settings.SIGNOFF_WATCHED_FOLDERS
    return next((root for root in roots if PurePath(folder).is_relative_to(root)), None)


def _parse(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(text) > MAX_LOCATION:
        raise InvalidInput(
            "folder", f"must be a path from / on, without .., of at most {MAX_LOCATION} characters"
        )
    return str(path)


def _look(connection: pool.Connection, trigger: UUID, definition: EventDefinition) -> reading.Look:
    """Take the files of a folder that are complete. Raise SourceUnreadable."""
    root = find_root(definition.location)
    assert root is not None  # it is allowed
    try:
        with open_folder(definition.location, root) as descriptor:
            return _take_complete(connection, trigger, definition, descriptor)
    except OSError as exc:
        reason = LINKED if exc.errno in (errno.ELOOP, errno.ENOTDIR) else exc.strerror
        raise reading.SourceUnreadable(f"the folder cannot be read: {reason}") from exc


def _take_complete(
    connection: pool.Connection, trigger: UUID, definition: EventDefinition, descriptor: int
) -> reading.Look:
    now, folder = pool.read_clock(connection), definition.location
    known_files = trigger_sources.list_seen_files(connection, trigger, folder)
    files = list_files(descriptor)
    problem = CROWDED if len(files) > MAX_LISTED else ""
    fresh, complete = list[ListedFile](), list[ListedFile]()
    for file in files:
        before = known_files.get(file.name)
        if before is None or before.stamp != file.stamp:
            fresh.append(file)
        elif not before.handled and now - before.seen_at >= SETTLED:
            complete.append(file)
    stamps = {file.name: file.stamp for file in fresh}
    trigger_sources.record_seen(connection, trigger, folder, stamps, now)
    missing = [*known_files.keys() - {file.name for file in files}]
    trigger_sources.record_missing(connection, trigger, folder, missing, now)
    if not complete or reading.is_full(connection, trigger):
        return reading.Look(problem=problem)
    for file in complete[:TAKEN]:
        _take(connection, trigger, definition, descriptor, file)
    failpoints.hit("before", SOURCE.failpoint, 0)
    return reading.Look(has_more=len(complete) > TAKEN, problem=problem)


def _take(
    connection: pool.Connection,
    trigger: UUID,
    definition: EventDefinition,
    descriptor: int,
    file: ListedFile,
) -> None:
    """Make an event of a file, or record why it is not one. A file that has just changed is left to a later look."""
    folder = definition.location
    path = str(PurePath(folder) / file.name)
    data: dict[str, Any] = {"path": path, "name": file.name, "size": file.size}
    try:
        content = read_file(descriptor, file)
        text = reading.parse_content(file.name, content.text)
    except FileChanged:
        return
    except reading.NotAnEvent as exc:
        key = ["refused file", path, file.stamp]
        reading.refuse(
            connection, trigger, definition, id=file.name, key=key, data=data, reason=str(exc)
        )
        trigger_sources.record_taken(connection, trigger, folder, file.name, "")
        return
    if trigger_sources.record_taken(connection, trigger, folder, file.name, content.digest):
        key = ["file", path, content.digest]
        data |= {"sha256": content.digest, **text}
        reading.keep(connection, trigger, definition, id=file.name, key=key, data=data)


@contextmanager
def open_folder(folder: str, root: Path) -> Iterator[int]:
    """Open a folder, which is `root` or below it. Raises OSError, also if a part of the path is a symbolic link."""
    descriptor = os.open(root, _FOLDER)
    try:
        for name in PurePath(folder).relative_to(root).parts:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def list_files(descriptor: int) -> list[ListedFile]:
    """List files, except folders and unfinished ones, the oldest first: MAX_LISTED, and one if there are more.

    Raises OSError.
    """
    files = []
    with os.scandir(descriptor) as entries:
        finished = (entry for entry in entries if not _is_passed(entry))
        for entry in islice(finished, MAX_LISTED + 1):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:  # deleted since it was listed
                continue
            file = ListedFile(
                name=os.fsencode(entry.name).decode("utf-8", "backslashreplace"),
                raw=entry.name,
                stamp=_stamp(status),
                at=status.st_mtime_ns,
                size=status.st_size,
                mode=status.st_mode,
            )
            files.append(file)
    return sorted(files, key=lambda file: (file.at, file.name))


def read_file(descriptor: int, file: ListedFile) -> FileContent:
    """Read a file that was listed. Raise NotAnEvent, or FileChanged if it is another one now."""
    if stat.S_ISLNK(file.mode):
        raise reading.NotAnEvent("it is a symbolic link")
    if not stat.S_ISREG(file.mode):
        raise reading.NotAnEvent("it is no regular file")
    if not is_text(file.raw):
        raise reading.NotAnEvent("its name is not UTF-8")
    if file.size > MAX_FILE:
        raise reading.NotAnEvent(f"it has {file.size} bytes, at most {MAX_FILE}")
    try:
        inner = os.open(file.raw, _FILE, dir_fd=descriptor)
    except FileNotFoundError as exc:
        raise FileChanged from exc
    except OSError as exc:
        raise reading.NotAnEvent(f"it cannot be read: {exc.strerror}") from exc
    with os.fdopen(inner, "rb") as stream:
        if _stamp(os.fstat(inner)) != file.stamp:
            raise FileChanged
        digest, text = hashlib.sha256(), b""
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            text = chunk  # the whole of a small file
        if _stamp(os.fstat(inner)) != file.stamp:
            raise FileChanged
    return FileContent(
        digest=digest.hexdigest(),
        text=reading.decode_content(text) if file.size <= reading.MAX_CONTENT else None,
    )


def _is_passed(entry: os.DirEntry[str]) -> bool:
    unfinished = entry.name.startswith(".") or entry.name.endswith(_UNFINISHED)
    return unfinished or entry.is_dir(follow_symlinks=False)


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


SOURCE = reading.WatchedSource(
    kind="folder",
    setting="SIGNOFF_WATCHED_FOLDERS",
    below=", or a folder below",
    help="Each complete file of this folder is an event of this trigger.",
    help_below=", and folders below",
    item="file",
    items="files",
    parse=_parse,
    allows=lambda folder: find_root(folder) is not None,
    look=_look,
)
