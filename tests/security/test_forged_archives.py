"""The archive against those who can write the object store or tables, but have no key."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.models import AuditEntry
from runtime.control import verification
from runtime.control.interventions import hold, retry
from runtime.control.transfer import restore, restore_file
from runtime.errors import NotArchived, Tampered
from runtime.models import ArchivedRun, JournalEntry, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import objects
from runtime.upkeep import retention
from tests.support.fake_ports import ask, say, turns
from tests.support.object_stores import Breakable
from tests.support.office import NEWCOMER, Target
from tests.support.pages import log_in, shows
from tests.support.seeds import Cast

ADMIN = Actor(person="admin")


def archive(run: UUID) -> dict[str, Any]:
    """Archive a run, and return the row of its file."""
    assert retention.archive_run(pool.djangos(), run)
    return dict(ArchivedRun.objects.values("place", "digest", "size").get(run=run))


def completed(target: Target) -> UUID:
    run = target.decided()
    assert target.advance(run).status == "completed"
    return run


def delete_dropped() -> None:
    with pool.open_own() as own:
        objects.delete_dropped(own, threading.Event())


def assert_refused(run: UUID, cast: Cast) -> None:
    """Nothing of the file is shown or restored, and `verify_run` finds it."""
    shows(log_in(cast.admin), f"/runs/{run}/", "cannot be shown")
    assert not verification.verify(run).is_consistent
    with pytest.raises(Tampered):
        restore(run=run, reason="a question", actor=ADMIN)


def put_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


def put_terabyte(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**40)  # a hole, which takes no room on the disk


def name_another_folder(path: Path) -> None:
    ArchivedRun.objects.update(place="../../etc/passwd")


@pytest.mark.parametrize("change", [put_link, put_terabyte, name_another_folder])
def test_what_cannot_be_a_file_of_the_archive_is_named_and_not_read(
    target: Target,
    object_store: Breakable,
    tmp_path: Path,
    cast: Cast,
    change: Callable[[Path], None],
) -> None:
    run = completed(target)
    change(tmp_path / "objects" / archive(run)["place"])
    assert_refused(run, cast)


def test_an_earlier_file_of_the_run_does_not_pass_for_the_last_one(
    target: Target, object_store: Breakable, cast: Cast
) -> None:
    run = target.failed()
    earlier = archive(run)
    restore(run=run, reason="a question", actor=ADMIN)
    agents = target.effects.agents
    agents["hr_onboarding"] = turns(ask(("account_agent", NEWCOMER)), say("done"))
    retry(run=run, reason="again", actor=ADMIN)
    assert target.advance(run).status == "completed"
    assert target.started(run) == 1, "the approval was used before the run was archived"
    archive(run)
    ArchivedRun.objects.filter(run=run).update(**earlier)
    assert_refused(run, cast)


def test_a_copy_of_the_file_does_not_bring_an_erased_run_back(
    target: Target, object_store: Breakable
) -> None:
    run = completed(target)
    copy = object_store.get(archive(run)["place"]) or b""
    assert retention.erase(run)
    with pytest.raises(NotArchived):
        restore_file(data=copy, reason="from a copy", actor=ADMIN)
    assert not JournalEntry.objects.filter(run_id=run).exists()


def test_a_forged_key_keeps_no_erased_file_in_the_store(
    target: Target, object_store: Breakable, caplog: pytest.LogCaptureFixture
) -> None:
    run = completed(target)
    archive(run)
    with pool.open_own() as own:
        own.execute("INSERT INTO runtime_droppedobject (place, at) VALUES ('../x', '2026-01-01')")
    assert retention.erase(run)
    delete_dropped()
    assert object_store.keys() == []
    assert "An object is not deleted, its row was changed: '../x'" in caplog.text


def lift_by_sql(run: UUID) -> None:
    Run.objects.filter(id=run).update(legal_hold=None)


def lift_with_a_row(run: UUID) -> None:
    lift_by_sql(run)
    last = AuditEntry.objects.filter(run=run).latest("seq")
    last.seq, last.act = last.seq + 1, "hold lifted"
    last.pk = None
    last.save(force_insert=True)


@pytest.mark.parametrize("forge", [lift_by_sql, lift_with_a_row])
def test_a_legal_hold_that_no_admin_lifted_holds(
    target: Target, object_store: Breakable, forge: Callable[[UUID], None]
) -> None:
    run = completed(target)
    hold(run=run, reason="lawsuit 7", actor=ADMIN)
    forge(run)
    for act in (retention._erase_one, lambda run: retention.archive_run(pool.djangos(), run)):
        assert not act(run)
    assert JournalEntry.objects.filter(run_id=run).exists()
    assert not verification.verify(run).is_consistent
