"""The state of a run at an entry, the changes by the entry, and the comparison of two runs."""

import json
from uuid import UUID, uuid4

from django.db.models import Q
from django.test import Client

from runtime.control.fork import fork
from runtime.core.enums import FailureCause
from runtime.models import JournalEntry, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure
from runtime.queries import runs
from runtime.queries.history import comparison, state_at
from runtime.queries.history.comparison import Comparison
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, shows, text


def _moved(run: UUID, position: int) -> list[tuple[str, str, str]]:
    past = state_at.state_after(run, position)
    assert past is not None
    return [(move.place, move.name, move.part) for move in past.moves]


def test_an_entry_shows_its_changes(office: Office) -> None:
    run = office.start()
    last = Run.objects.get(id=run).position
    assert ("", "", "phase") in _moved(run, 1)
    assert ("0", "hr_onboarding", "state") in [
        place for position in range(1, last) for place in _moved(run, position)
    ]
    assert ("0.c1.0/c2.0", "set_privileges", "state") in _moved(run, last)
    assert ("", "", "pending") in _moved(run, last)
    ended = office.approve(run).position
    assert ("", "", "outcome") in _moved(run, ended)
    assert all(_moved(run, position) for position in range(1, ended + 1))


def test_admins_read_the_state_at_each_entry_as_it_was(
    admin: Client, bea: Client, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    page, api = f"/runs/{suspended}", f"/runs/{suspended}"
    last = Run.objects.get(id=suspended).position
    at = f"{page}/at/{last}/"
    on = (f'href="{page}/at/{last - 1}/"', f'href="{page}/fork/{last}/"')
    shown = shows(admin, at, "Changes by this entry", "account_agent", "GateOpened", *on)
    has(shown.partition('id="moves"')[2], "gated")
    live = admin_api.get(f"{api}/continuation").json()
    office.approve(suspended)
    assert runs.continuation(suspended) is None
    document = admin_api.get(f"{api}/at/{last}").json()
    assert document["continuation"] == live
    assert document["position"] == live["position"] == last
    assert document["unreadable"] is None
    assert "GateOpened" in document["events"]
    assert {"place", "name", "part", "before", "after"} == set(document["moves"][0])
    shows(admin, f"{page}/?tab=state", at)
    text(bea, f"{page}/?tab=state", 404)
    shows(bea, suspended, hides=["Snapshots"])
    for nowhere in (0, 999, 10**30):
        assert admin_api.get(f"{api}/at/{nowhere}").status_code == 404
        text(admin, f"{page}/at/{nowhere}/", 404)
    text(admin, f"/runs/{uuid4()}/at/1/", 404)
    JournalEntry.objects.filter(run_id=suspended, position=2).update(body="{")
    shows(admin, at, "Entry 2 of the journal cannot be read")
    document = admin_api.get(f"{api}/at/{last}").json()
    assert (document["unreadable"], document["continuation"], document["moves"]) == (2, None, [])


def test_only_admins_read_a_providers_text(
    admin: Client, ada: Client, admin_api: Caller, ada_api: Caller, office: Office
) -> None:
    said = "odd <field>"
    fault = ModelFailure(error="rejected", cause=FailureCause.REQUEST, model="openai:a", said=said)
    office.effects.agents["hr_onboarding"] = lambda request: fault
    run = office.start()
    shows(admin, f"/runs/{run}/?step=0/m1", "odd &lt;field&gt;")
    for tab in ("?step=0/m1", "?tab=transcript", ""):
        shows(ada, f"/runs/{run}/{tab}", hides=["odd &lt;field"])
    read = [each.get(f"/runs/{run}/journal").json()["items"] for each in (admin_api, ada_api)]
    told, kept_from = (json.dumps(items) for items in read)
    assert (said in told, "said" in kept_from) == (True, False)


# Two runs


def _compared(left: UUID, right: UUID) -> Comparison:
    one, other = runs.run_detail(Q(), left), runs.run_detail(Q(), right)
    assert one is not None
    assert other is not None
    return comparison.compare(one, other)


def test_a_fork_and_its_original_side_by_side(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    new = fork(run=run, position=gated, actor=Actor(person="ada"))
    office.advance(new)
    office.approve(run)
    shows(ada, new, f'href="/runs/{run}/compare/{new}/"')
    for left, right, common in ((run, new, (gated, 1)), (new, run, (1, gated))):
        shown = _compared(left, right)
        assert shown.related
        assert (shown.left.common, shown.right.common) == common
        assert shown.same > 0
        names = [place.name for place in shown.places]
        assert ("set_privileges" in names, "create_account" in names) == (True, False)
        entries = f"Entries 1 to {common[0]}"
        shows(ada, f"/runs/{left}/compare/{right}/", entries, "send_welcome_mail")


def test_unrelated_runs_are_compared_from_their_start(
    ada: Client, cyril: Client, office: Office
) -> None:
    one, two, other = office.start(), office.start(), office.start(requester="bea")
    shown = _compared(one, other)
    assert (shown.left.common, shown.right.common) == (0, 0)
    assert len(shown.left.own) == Run.objects.get(id=one).position
    for run in (one, two):
        office.approve(run)
    shown = _compared(one, two)
    assert not shown.related
    assert (shown.places, shown.left.own, shown.right.own) == ((), (), ())
    shows(ada, f"/runs/{one}/compare/{two}/", "None: every agent")
    for client, left, right in ((cyril, one, one), (ada, one, uuid4()), (ada, uuid4(), one)):
        text(client, f"/runs/{left}/compare/{right}/", 404)
