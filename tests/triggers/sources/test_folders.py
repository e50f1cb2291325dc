"""A watched folder: each complete file starts one run, and each other file has its reason on the trigger's page."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from psycopg import OperationalError
from pytest_django import Settings

from runtime.errors import InvalidInput
from runtime.models import Run, Trigger, TriggerAct, TriggerSource, WatchedFile
from runtime.store import pool
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, listing, trials
from runtime.triggers.sources import folders, reading
from runtime.triggers.sources.folders import FileChanged
from runtime.triggers.sources.reading import NotAnEvent
from runtime.upkeep import retention
from tests.support.engine import ADA
from tests.triggers.events.conftest import SAID, Desk, told

FILED = {**SAID, "filter": "", "key": "", "mapping": {"full_name": "{{data.json.who}}", "level": 1}}


@pytest.fixture
def inbox(tmp_path: Path, settings: Settings) -> Path:
    settings.SIGNOFF_WATCHED_FOLDERS = (tmp_path / "in",)
    (tmp_path / "in" / "hr").mkdir(parents=True)
    return tmp_path / "in" / "hr"


@pytest.fixture
def filed(desk: Desk, inbox: Path) -> UUID:
    """A trigger that watches the folder."""
    return desk.make(**{**FILED, "folder": f"{inbox}/"})


def look(desk: Desk, seconds: float = 3) -> None:
    """Look at each folder, this much later."""
    desk.at += timedelta(seconds=seconds)
    with pool.open_own() as own:
        reading.read_all(folders.SOURCE, own, threading.Event())


def put(inbox: Path, who: str, name: str = "a.json") -> Path:
    """Rename a complete file into place."""
    made = inbox / f".{name}"
    made.write_text(json.dumps({"who": who}))
    return made.replace(inbox / name)


def source(id: UUID) -> listing.SourceView:
    found = listing.read_one(TriggerKind.EVENT, id, ADA).source
    assert found is not None
    return found


def test_a_file_starts_one_run_by_its_name_and_content(
    desk: Desk, filed: UUID, inbox: Path
) -> None:
    put(inbox, "Ann")
    look(desk)
    look(desk, 1)
    assert told(filed) == []  # it may still be written
    look(desk, 1)
    look(desk)
    desk.sweep()
    assert told(filed) == [("a.json", "started", "")]
    run = Run.objects.get()
    assert (run.requester, json.loads(run.input)) == ("ada", {"full_name": "Ann", "level": 1})
    assert (source(filed).kind, source(filed).place) == ("folder", str(inbox))
    put(inbox, "Ann")  # the same again, then other content, then the first again
    for who in ("Ann", "Bob", "Ann"):
        put(inbox, who)
        look(desk)
        look(desk)
    (inbox / "a.json").unlink()
    look(desk)
    put(inbox, "Ann")
    put(inbox, "Ann", "b.json")
    look(desk)
    look(desk)
    desk.sweep()
    assert [name for name, *_ in told(filed)] == ["a.json", "a.json", "b.json"]
    assert Run.objects.count() == 3


def test_the_data_of_a_file(desk: Desk, inbox: Path) -> None:
    said = {**FILED, "mapping": {"full_name": "{{data}}", "level": 1}}
    made = desk.make(**said, folder=str(inbox))
    (inbox / "a.txt").write_text("Grüße")
    (inbox / "big.txt").write_text("x" * (reading.MAX_CONTENT + 1))
    (inbox / "raw.bin").write_bytes(b"\xff\x00")
    look(desk)
    look(desk)
    [trial, *others] = reversed(trials.try_definition(said, ADA, id=made))
    assert trial.input["full_name"] == {
        "path": f"{inbox}/a.txt",
        "name": "a.txt",
        "size": 7,
        "sha256": "f83e039796c6453a10f5519e39fd113901572316a1a8ea07cb525d2801dfd074",
        "text": "Grüße",
    }
    assert [sorted(one.input["full_name"]) for one in others] == [
        ["name", "path", "sha256", "size"]
    ] * 2


def _large(file: Path) -> None:
    with file.open("wb") as made:
        made.truncate(1024**3)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.write_text('{"who": '), "it is no JSON: Expecting value"),
        (_large, "it has 1073741824 bytes, at most 67108864"),
        (lambda file: file.symlink_to("/etc/passwd"), "it is a symbolic link"),
        (os.mkfifo, "it is no regular file"),
        (lambda file: file.write_text("[" * 60_000), "it is no JSON"),
        (lambda file: file.write_text('{"who": NaN}'), "its json.who: not a finite number"),
    ],
)
def test_a_file_that_is_no_event_is_refused_once_and_stops_no_other(
    desk: Desk, filed: UUID, inbox: Path, make: Callable[[Path], object], why: str
) -> None:
    make(inbox / "a.json")
    put(inbox, "Ann", "b.json")
    for _ in range(4):
        look(desk)
    desk.sweep()
    states = {name: (state, reason) for name, state, reason in told(filed)}
    assert states["a.json"][0] == "refused"
    assert states["a.json"][1].startswith(why)
    assert states["b.json"] == ("started", "")
    assert len(told(filed)) == 2
    put(inbox, "Bob")
    look(desk)
    look(desk)
    desk.sweep()
    assert ("a.json", "started", "") in told(filed)


def test_a_file_without_the_right_to_read_it_is_read_once_it_is_there(
    desk: Desk, filed: UUID, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(inbox, "Ann")
    opening = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if path == "a.json":
            raise PermissionError(13, "Permission denied")
        return opening(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        look(desk)
        look(desk)
    assert told(filed)[0][1:] == ("refused", "it cannot be read: Permission denied")
    (inbox / "a.json").chmod(0o640)
    look(desk)
    look(desk)
    desk.sweep()
    assert [state for _, state, _ in told(filed)] == ["refused", "started"]


def test_a_file_that_changes_or_goes_is_left_to_a_later_look(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, sha256, opening = put(inbox, "Ann"), hashlib.sha256, os.open
    opened = list[int]()

    def record(*args: Any, **options: Any) -> int:
        opened.append(opening(*args, **options))
        return opened[-1]

    monkeypatch.setattr(os, "open", record)
    with folders.open_folder(str(inbox), inbox.parent) as descriptor:
        (file,) = folders.list_files(descriptor)
        made.write_text("{}")
        with pytest.raises(FileChanged):  # since it was listed
            folders.read_file(descriptor, file)
        (file,) = folders.list_files(descriptor)
        with monkeypatch.context() as patch:
            patch.setattr(hashlib, "sha256", lambda: made.write_text("[1]") and sha256())
            with pytest.raises(FileChanged):  # while it is read
                folders.read_file(descriptor, file)
        made.unlink()
        with pytest.raises(FileChanged):
            folders.read_file(descriptor, file)
        for name, why in ((b"\xff.json", "its name is not UTF-8"), (b"link", "it is a symbolic")):
            one = inbox / os.fsdecode(name)
            one.symlink_to(inbox) if name == b"link" else one.touch()
            (file,) = folders.list_files(descriptor)
            with pytest.raises(NotAnEvent, match=why):
                folders.read_file(descriptor, file)
            one.unlink()
        for n in range(3):
            put(inbox, "Ann", f"{n}.json")
        monkeypatch.setattr(folders, "MAX_LISTED", 1)
        assert len(folders.list_files(descriptor)) == 2
        monkeypatch.setattr(folders, "_is_passed", lambda entry: (inbox / entry.name).unlink())
        assert folders.list_files(descriptor) == []
    for each in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
    assert reading.parse_content("A.JSON", reading.decode_content(b"1")) == {"json": 1}
    assert reading.parse_content("a.json", reading.decode_content(b"\0")) == {}


def test_unfinished_files_and_folders_are_passed(desk: Desk, filed: UUID, inbox: Path) -> None:
    for name in (".a.json", "a.json.part", "a.tmp", "a.json~"):
        (inbox / name).write_text("{}")
    (inbox / "below").mkdir()
    look(desk)
    look(desk)
    assert told(filed) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("in", "must be a path from / on"),
        ("/in/../etc", "must be a path from / on"),
        ("/etc", "must be {root}, or a folder below"),
        ("{root}-other", "must be {root}, or a folder below"),
        ("/" + "x" * 500, "must be a path from / on"),
    ],
)
def test_a_folder_that_is_not_allowed_names_the_field(
    desk: Desk, inbox: Path, given: str, why: str
) -> None:
    root = str(inbox.parent)
    with pytest.raises(InvalidInput, match=why.format(root=root)) as refused:
        desk.make(**{**FILED, "folder": given.format(root=root)})
    assert refused.value.field == "folder"


def test_a_folder_that_cannot_be_read_says_why_on_the_page(
    desk: Desk, filed: UUID, inbox: Path, settings: Settings
) -> None:
    put(inbox, "Ann")
    outside = inbox.parents[1] / "out"
    inbox.rename(outside)
    look(desk)
    assert source(filed).problem == "the folder cannot be read: No such file or directory"
    assert listing.read_list(TriggerKind.EVENT, ADA)[0][0].problem == source(filed).problem
    inbox.symlink_to(outside)
    look(desk)
    assert source(filed).problem.endswith("a part of its path is a symbolic link, or no folder")
    inbox.unlink()
    outside.rename(inbox)
    settings.SIGNOFF_WATCHED_FOLDERS = ()
    look(desk)
    assert source(filed).problem == "SIGNOFF_WATCHED_FOLDERS does not name the folder"
    settings.SIGNOFF_WATCHED_FOLDERS = (inbox.parent,)
    look(desk)
    assert (source(filed).problem, source(filed).late) == ("", False)
    desk.at += timedelta(seconds=200)
    assert source(filed).late


def test_an_error_at_one_source_keeps_no_other_waiting(
    desk: Desk, filed: UUID, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, taken = desk.make(**{**FILED, "folder": str(inbox)}), folders._take_complete

    def fail(connection: Any, id: UUID, *rest: Any) -> Any:
        if id == filed:
            connection.execute("SELECT 1 / 0")  # ends the transaction around it
        return taken(connection, id, *rest)

    monkeypatch.setattr(folders, "_take_complete", fail)
    made = put(inbox, "Ann")
    for _ in range(2):
        look(desk)
    made.unlink()
    look(desk)
    desk.sweep()
    assert (source(filed).problem, told(filed)) == (reading.UNKNOWN, [])
    assert (source(other).problem, told(other)) == ("", [("a.json", "started", "")])
    assert WatchedFile.objects.get().gone_at is not None
    monkeypatch.setattr(folders, "_take_complete", Mock(side_effect=OperationalError("gone")))
    with pytest.raises(OperationalError):  # the loop tries again
        look(desk)


def test_a_paused_trigger_leaves_its_files_and_an_ended_one_forgets_them(
    desk: Desk, filed: UUID, inbox: Path
) -> None:
    changes.pause(TriggerKind.EVENT, id=filed, actor=ADA)
    Trigger.objects.update(state="active")  # as a program could that writes to it
    put(inbox, "Ann")
    look(desk)
    look(desk)
    assert told(filed) == []
    changes.resume(TriggerKind.EVENT, id=filed, actor=ADA)
    look(desk)
    look(desk)
    assert len(told(filed)) == 1
    changes.end_trigger(TriggerKind.EVENT, id=filed, actor=ADA)
    retention.enforce(pool.use_django_connection(), threading.Event())
    assert (TriggerSource.objects.count(), WatchedFile.objects.count()) == (0, 0)


def test_a_source_that_a_program_wrote_to_postgres_is_not_read(
    desk: Desk, filed: UUID, inbox: Path
) -> None:
    other = inbox.parent / "other"
    other.mkdir()
    put(other, "Eve")
    TriggerSource.objects.update(place=str(other))
    look(desk)
    look(desk)
    assert told(filed) == []
    TriggerAct.objects.update(body="{}")
    look(desk)
    assert TriggerSource.objects.get(trigger=filed).problem == "the trigger does not verify"


def test_files_beyond_what_waits_and_what_is_listed(
    desk: Desk, filed: UUID, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_LISTED", 2)
    monkeypatch.setattr(folders, "TAKEN", 1)
    for name in ("a.json", "b.json", "c.json"):
        put(inbox, name, name)
    look(desk)
    look(desk)
    assert source(filed).problem.startswith("more than 10000 files are there")
    assert len(told(filed)) == 3  # one transaction each
    monkeypatch.setattr(reading, "MAX_OPEN", 0)
    put(inbox, "Dan", "d.json")
    look(desk)
    look(desk)
    assert len(told(filed)) == 3
