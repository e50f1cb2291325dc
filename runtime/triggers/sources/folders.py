"""Watches folders: each file that is complete becomes an event of its trigger, once by its name and content.

The sweeper lists a folder instead of being told by the system: that works on network disks too, and Postgres has the
files that it saw, so another sweeper continues. A file is complete if two looks find it unchanged.
"""

import errno
import threading
from datetime import timedelta
from pathlib import PurePath
from typing import Any
from uuid import UUID

from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import trigger_events, watched_files
from runtime.store.tables.triggers.sources import Kind
from runtime.triggers.events import places
from runtime.triggers.events.definition import Definition
from runtime.triggers.sources import contents, folder, keeping, rounds
from runtime.triggers.sources.folder import MAX_LISTED, Changed, File
from runtime.triggers.sources.keeping import MAX_OPEN, Refused
from runtime.triggers.sources.rounds import Looked, Unreadable

SETTLED = timedelta(seconds=2)  # between the two looks
TAKEN = 50  # files that one transaction takes

LINKED = "a part of its path is a symbolic link, or no folder"
CROWDED = f"more than {MAX_LISTED} files are there, so some are not seen: move those away that started their run"


def look(_: Connection, stop: threading.Event) -> None:
    """Look at each watched folder."""
    rounds.each(Kind.FOLDER, _look, stop)


def _look(connection: Connection, id: UUID, one: Definition) -> Looked:
    """Take the files of a folder that are complete. Raise Unreadable."""
    root = places.root_of(one.folder)
    if root is None:
        raise Unreadable(f"{places.FOLDERS} does not name the folder")
    try:
        with folder.opened(one.folder, root) as descriptor:
            return _taken(connection, id, one, descriptor)
    except OSError as exc:
        why = LINKED if exc.errno in (errno.ELOOP, errno.ENOTDIR) else exc.strerror
        raise Unreadable(f"the folder cannot be read: {why}") from exc


def _taken(connection: Connection, id: UUID, one: Definition, descriptor: int) -> Looked:
    now = pool.now(connection)
    known = watched_files.known(connection, id, one.folder)
    found = folder.listed(descriptor)
    problem = CROWDED if len(found) > MAX_LISTED else ""
    fresh, complete = list[File](), list[File]()
    for file in found:
        before = known.get(file.name)
        if before is None or before.stamp != file.stamp:
            fresh.append(file)
        elif not before.done and now - before.seen_at >= SETTLED:
            complete.append(file)
    stamps = {file.name: file.stamp for file in fresh}
    watched_files.see(connection, id, one.folder, stamps, now)
    gone = [*known.keys() - {file.name for file in found}]
    watched_files.miss(connection, id, one.folder, gone, now)
    if not complete or trigger_events.open_count(connection, id) >= MAX_OPEN:
        return Looked(problem=problem)
    for file in complete[:TAKEN]:
        _take(connection, id, one, descriptor, file)
    failpoints.hit("before", Kind.FOLDER.failpoint, 0)
    return Looked(more=len(complete) > TAKEN, problem=problem)


def _take(connection: Connection, id: UUID, one: Definition, descriptor: int, file: File) -> None:
    """Make an event of a file, or record why it is none. A file that has just changed is left to a later look."""
    path = str(PurePath(one.folder) / file.name)
    kept = {"source": f"folder:{one.folder}", "id": file.name}
    facts: dict[str, Any] = {"path": path, "name": file.name, "size": file.size}
    try:
        content = folder.read(descriptor, file)
        data = {**facts, "sha256": content.digest, **contents.told(file.name, content.text)}
    except Changed:
        return
    except Refused as exc:
        key, why = ["refused file", path, file.stamp], str(exc)
        data = {**facts, "problem": why}
        keeping.refuse(connection, id, one, **kept, key=key, data=data, why=why)
        watched_files.take(connection, id, one.folder, file.name, "")
        return
    if watched_files.take(connection, id, one.folder, file.name, content.digest):
        key = ["file", path, content.digest]
        keeping.keep(connection, id, one, **kept, key=key, data=data)
