"""The state of a run at an entry, the changes by the entry, and the comparison of two runs."""

import json
from uuid import UUID, uuid4

from django.db.models import Q
from django.test import Client

from runtime.core.enums import FailureCause
from runtime.models import JournalEntry, Run
from runtime.ports.effects import ModelFailure
from runtime.queries import runs
from runtime.queries.history import comparison, state_at
from runtime.queries.history.comparison import Comparison
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, shows, text


def moved(run: UUID, position: int) -> list[tuple[str, str, str]]:
    past = state_at.state_after(run, position)
    assert past is not None
    return [(move.place, move.name, move.part) for move in past.moves]


def fork(client: Client, run: UUID, position: int) -> UUID:
    answer = client.post(f"/runs/{run}/fork/{position}/")
    return UUID(answer["Location"].strip("/").split("/")[1])


def test_an_entry_shows_its_changes(office: Office) -> None:
    run = office.start()
    last = Run.objects.get(id=run).position
    assert ("", "", "phase") in moved(run, 1)
    assert ("0", "hr_onboarding", "state") in [
        place for position in range(1, last) for place in moved(run, position)
    ]
    assert ("0.c1.0/c2.0", "set_privileges", "state") in moved(run, last)
    assert ("", "", "pending") in moved(run, last)
    office.approve(run)
    ended = Run.objects.get(id=run).position
    assert ("", "", "outcome") in moved(run, ended)
    assert all(moved(run, position) for position in range(1, ended + 1))


def test_the_page_of_an_entry_shows_the_change_and_leads_on(admin: Client, suspended: UUID) -> None:
    run, last = f"/runs/{suspended}", Run.objects.get(id=suspended).position
    on = (f'href="{run}/at/{last - 1}/"', f'href="{run}/fork/{last}/"')
    page = shows(admin, f"{run}/at/{last}/", "Changes by this entry", *on)
    has(page.partition('id="moves"')[2], "gated")


def test_the_state_at_an_entry_by_the_api(
    admin_api: Caller, ada_api: Caller, suspended: UUID
) -> None:
    last = Run.objects.get(id=suspended).position
    document = admin_api.get(f"/runs/{suspended}/at/{last}").json()
    assert document["position"] == document["continuation"]["position"] == last
    assert document["unreadable"] is None
    assert "GateOpened" in document["events"]
    assert {"place", "name", "part", "before", "after"} == set(document["moves"][0])
    live = admin_api.get(f"/runs/{suspended}/continuation").json()
    assert document["continuation"] == live
    for nowhere in (0, last + 1, 10**30):
        assert admin_api.get(f"/runs/{suspended}/at/{nowhere}").status_code == 404
    assert ada_api.get(f"/runs/{suspended}/at/1").status_code == 403
    JournalEntry.objects.filter(run_id=suspended, position=2).update(body="{}")
    document = admin_api.get(f"/runs/{suspended}/at/{last}").json()
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


def test_a_fork_and_its_original_side_by_side(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    new = fork(ada, run, gated)
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


def test_two_runs_that_did_the_same_have_everything_in_common(ada: Client, office: Office) -> None:
    one, two = office.start(), office.start()
    for run in (one, two):
        office.approve(run)
    shown = _compared(one, two)
    assert not shown.related
    assert (shown.places, shown.left.own, shown.right.own) == ((), (), ())
    shows(ada, f"/runs/{one}/compare/{two}/", "None: every agent")


def test_runs_with_different_input_have_nothing_in_common(office: Office) -> None:
    one = office.start()
    other = office.start(requester="bea")
    shown = _compared(one, other)
    assert (shown.left.common, shown.right.common) == (0, 0)
    assert len(shown.left.own) == Run.objects.get(id=one).position


def test_comparing_requires_permission_to_read_both_runs(
    cyril: Client, ada: Client, suspended: UUID
) -> None:
    nowhere = uuid4()
    pairs = [(cyril, suspended, suspended), (ada, suspended, nowhere), (ada, nowhere, suspended)]
    for client, left, right in pairs:
        text(client, f"/runs/{left}/compare/{right}/", 404)


def _compared(left: UUID, right: UUID) -> Comparison:
    sides = [runs.run_detail(Q(), run) for run in (left, right)]
    assert sides[0] is not None
    assert sides[1] is not None
    return comparison.compare(sides[0], sides[1])
