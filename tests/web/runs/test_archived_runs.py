"""Archived runs on pages and in the API: read from the file, marked, restored and held by admins."""

import re
import socket
from collections.abc import Iterator
from uuid import UUID

import pytest
from django.test import Client

from approvals.decisions.teamwork import ASKED
from approvals.models import Approval, AuditEntry
from approvals.reads import approval_views
from approvals.signed import audit
from approvals.web.components import call_status
from runtime.models import ArchivedEntries, ArchivedRun, Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.objects import ObjectStore
from runtime.store import archived_runs, pool
from runtime.store.object_stores.stores import BoundedReads, open_store
from runtime.upkeep import retention
from runtime.web.pages import run_actions as pages
from tests.support.api_client import Caller
from tests.support.long_runs import long_office_run
from tests.support.object_stores import Breakable
from tests.support.office import Office
from tests.support.pages import has, shows, text, text_of

WHY = {"reason": "The auditor\nasks."}


@pytest.fixture
def archived(office: Office, object_store: Breakable) -> UUID:
    run = office.start(key="newhire-2026")
    office.approve(run)
    assert retention.archive_run(pool.use_django_connection(), run)
    return run


def test_the_page_of_an_archived_run_shows_all_of_it_and_offers_nothing(
    ada: Client,
    ada_api: Caller,
    admin: Client,
    office: Office,
    object_store: Breakable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = office.start(key="newhire-2026")
    office.approve(run)
    asked = f"/a/{office.request(run).id}/"
    places = [f"/runs/{run}/{tab}" for tab in ("", "?tab=transcript", "?step=0", "fork/1/")]
    before, journal = [text(ada, place) for place in places], _api(ada_api, run)
    assert retention.archive_run(pool.use_django_connection(), run)
    after = [text(ada, place) for place in places]
    assert _api(ada_api, run) == journal
    for old, new in zip(before[:3], after[:3], strict=True):
        has(new, "Archived on", "read from the run's file", hides=["Fork…", "Restore…"])
        assert _timeless(new.partition("Views of this run")[2]) == _timeless(
            old.partition("Views of this run")[2]
        )
    place = ArchivedRun.objects.get().place or ""
    how = "/manual/how-to/archive-runs/"
    shows(admin, f"/runs/{run}/", "Restore…", "Hold this run…", f"Its file is <code>{place}", how)
    shows(ada, "/runs/?q=key:newhire-2026", str(run), "<span>archived</span>")
    assert ada_api.get("/runs?business_key=newhire-2026").json()["items"][0]["id"] == str(run)
    has(text_of(ada.post(f"/runs/{run}/fork/1/"), 409), "an admin must restore it")
    object_store.is_down, ada.raise_request_exception = True, False
    monkeypatch.setattr(archived_runs, "CACHED_SECONDS", 1e-9)
    shows(ada, f"/runs/{run}/", "object store", status=503)
    shows(ada, "/runs/?q=newhire", str(run))
    assert ada_api.get(f"/runs/{run}").status_code == 503
    shows(ada, asked, "Set the privileges of newhire", "The steps of this run cannot be shown now")


@pytest.fixture
def silent_store(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A bucket whose server accepts connections and never answers, read as the web reads it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield BoundedReads(open_store(bucket), seconds=0.1)


def test_a_store_that_never_answers_holds_up_no_page(
    ada: Client,
    ada_api: Caller,
    archived: UUID,
    silent_store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archived_runs, "CACHED_SECONDS", 1e-9)
    wiring.plug(objects=silent_store)
    ada.raise_request_exception = False
    for _ in range(10):  # one of them waits
        shows(
            ada,
            f"/runs/{archived}/",
            "object store cannot be reached",
            "All other pages work",
            "/manual/how-to/store-large-results/",
            status=503,
        )
    answer = ada_api.get(f"/runs/{archived}")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "only archived runs" in answer.json()["detail"]
    shows(ada, "/runs/", str(archived))


def test_the_requests_of_an_archived_run_are_read_without_the_store(
    bea_api: Caller, office: Office, object_store: Breakable, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = office.in_doubt()
    office.cancel(run, "Enough.")
    asked = [office.request(run), office.in_doubt_request(run)]
    before = [bea_api.get(f"/approvals/{one.id}").json() for one in asked]
    assert retention.archive_run(pool.use_django_connection(), run)
    assert [bea_api.get(f"/approvals/{one.id}").json() for one in asked] == before
    object_store.is_down = True
    monkeypatch.setattr(archived_runs, "CACHED_SECONDS", 1e-9)
    before[1]["late_outcomes"] = None
    assert [bea_api.get(f"/approvals/{one.id}").json() for one in asked] == before
    assert bea_api.get(f"/approvals/{asked[0].id}/questions").json() == []
    approval = approval_views.read_approval(asked[0].id, actor=Actor(person="bea"))
    delay = call_status.read_delay(approval)
    told = call_status.describe_outcome(approval, delay, "Approved", "It starts.")
    assert (told, delay.counts_at) == ("Approved. It starts.", None)
    audit.append(
        run=run, actor=Actor(person="bea"), act=ASKED, subject=f"request {approval.id}", detail={}
    )
    assert bea_api.get(f"/approvals/{approval.id}/questions").status_code == 503


def test_an_admin_opens_the_removed_entries_of_a_run(
    ada: Client,
    admin: Client,
    office: Office,
    object_store: Breakable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other, run = office.start(), long_office_run(office, archives=True)
    whole, page = f"/runs/{run}/", f"/runs/{run}/removed/"
    begins = ada.get(f"/api/v1{whole[:-1]}").json()["history_begins"]
    monkeypatch.setattr(pages, "ENTRIES", begins - 3)

    def opened() -> list[str]:
        shows(admin, whole, f"History before entry {begins} was moved to the archive on", page)
        shows(ada, whole, "moved to the archive", hides=[page])
        found = [text(admin, page), text(admin, f"{page}?page=2")]
        shows(admin, f"{page}?page=3", status=404)
        shows(ada, page, status=404)
        started = 'Entry 1: run started <span class="meta"><time datetime="20'
        has(found[0], "Archived", started, "page=2", hides=[f"Entry {begins - 2}:"])
        has(found[1], *(f"Entry {at}:" for at in (begins - 2, begins - 1)), "page=1")
        has(found[1], hides=[f"Entry {begins}:", "page=3"])
        return [one.partition('id="entries"')[2] for one in found]

    before = opened()
    office.approve(run)
    assert retention.archive_run(pool.use_django_connection(), run)
    assert opened() == before
    place = ArchivedEntries.objects.get(last__isnull=False).place
    object_store.put(place, b"<b>forged")
    shows(admin, page, "cannot be shown", f"the object {place} does not match")
    object_store.is_down, admin.raise_request_exception = True, False
    monkeypatch.setattr(archived_runs, "CACHED_SECONDS", 1e-9)
    shows(admin, page, "object store cannot be reached", status=503)
    object_store.is_down = False
    shows(admin, f"/runs/{other}/removed/", "No entries of this run were removed.")


def test_a_file_that_does_not_verify_is_named_on_the_page(
    admin: Client, archived: UUID, object_store: Breakable
) -> None:
    place = ArchivedRun.objects.get().place or ""
    object_store.put(place, b"<b>forged")
    shows(admin, f"/runs/{archived}/", "cannot be shown", f"the object {place} does not match")
    shows(admin, f"/a/{Approval.objects.get(run=archived).id}/", "Set the privileges of newhire")
    has(text_of(admin.post(f"/runs/{archived}/restore/", WHY), 409), "Not restored: the file")
    assert Run.objects.get(id=archived).archived_at is not None


def test_an_admin_holds_and_restores_a_run(
    ada: Client, admin: Client, admin_api: Caller, archived: UUID
) -> None:
    run = f"/runs/{archived}/"
    too_long = admin.post(f"{run}hold/", {"reason": "x" * 2_001})
    has(text_of(too_long, 422), "Not held: the reason must have at most 2000")
    shows(admin, f"{run}lift-hold/", "This run is not under a legal hold")
    assert admin.post(f"{run}hold/", {"reason": "<b>Lawsuit"})["Location"] == run
    shows(ada, run, "Under a legal hold by <bdi>admin</bdi>", "&lt;b&gt;Lawsuit", hides=["Lift"])
    held = admin_api.get(f"/runs/{archived}").json()
    assert (held["legal_hold"]["by"], held["legal_hold"]["reason"]) == ("admin", "<b>Lawsuit")
    shows(admin, f"{run}lift-hold/", "The rules of retention and archive count", "Lawsuit")
    assert admin_api.post(f"/runs/{archived}/lift-hold", WHY).json()["legal_hold"] is None
    shows(admin, f"{run}restore/", "The file is verified")
    assert admin.post(f"{run}restore/", WHY)["Location"] == run
    shows(admin, run, "Fork…", hides=["Archived on"])
    has(text_of(admin.post(f"{run}restore/", WHY), 409), "not in the archive", "The auditor")
    acts = AuditEntry.objects.filter(run=archived).order_by("seq").values_list("act", "actor")
    assert list(acts)[-3:] == [("held", "admin"), ("hold lifted", "admin"), ("restored", "admin")]


def _api(caller: Caller, run: UUID) -> list[object]:
    """All that the API reads of a run, but for its mark."""
    found = caller.get(f"/runs/{run}").json()
    found.pop("archived_at")
    return [found, *(caller.get(f"/runs/{run}/{part}").json() for part in ("journal", "budget"))]


def _timeless(page: str) -> str:
    """The page without ages and tokens that differ at each request."""
    return re.sub(r'\d+ (?:s|ms|min)\b|value="\w{64}"', "", page)
