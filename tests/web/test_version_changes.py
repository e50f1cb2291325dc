"""The page and the API on which an admin decides a change of an agent once for all its waiting runs."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import Approval
from approvals.rules.policy import Group
from runtime.core.values.enums import GateKind
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.pages import has, log_in, shows, text_of
from tests.support.released import account_agent, released
from tests.support.seeds import Cast

PAGE = "/version-changes/"


@pytest.fixture
def pair(cast: Cast) -> dict[str, str]:
    """A change for which two runs of Ada's wait, and one of the admin's who looks."""
    seeds.person("anne", Group.ADMINS, Group.REVIEWERS)
    before = released(account_agent(instructions="Be <b>kind."))
    after = released(account_agent(instructions="Be brief.", subagents=[]))
    found = {"agent": "account_agent", "before": before, "after": after}
    for requester in ("ada", "ada", "anne"):
        args = {**found, "changes": []}
        seeds.pending(requester=requester, kind=GateKind.VERSION, call="", args=args)
    return found


def _anne() -> User:
    return User.objects.get(username="anne")


@pytest.mark.django_db
def test_an_admin_continues_all_runs_of_a_change(pair: dict[str, str], admin: Client) -> None:
    shows(admin, "/overview/", "3 runs wait because their agents changed", PAGE)
    shows(admin, PAGE, "3 runs wait", "may not decide on actions", hides=["Continue 2 runs"])
    anne = log_in(_anne())
    own = "anne started this run"
    shows(anne, PAGE, "Continue 2 runs", "<del>Be &lt;b&gt;kind.</del>", "sub-agent helper", own)
    wrong = anne.post(f"{PAGE}continue/", {**pair, "count": "2", "reason": "All <fine>."})
    has(text_of(wrong, 422), "which is 3", "Nothing was decided", "All &lt;fine&gt;.", 'value="2"')
    for count in ("9" * 5000, "٣"):
        wrong = anne.post(f"{PAGE}continue/", {**pair, "count": count, "reason": "All."})
        has(text_of(wrong, 422), "which is 3")
    form = {**pair, "count": "3", "reason": "All <fine>."}
    done = anne.post(f"{PAGE}continue/", form, follow=True)
    has(text_of(done), "2 runs continue", "1 still wait", "decided by <bdi>anne</bdi>")
    assert Approval.objects.filter(decided_by="anne", reason="All <fine>.").count() == 2
    again = anne.post(f"{PAGE}continue/", {**pair, "after": "sha256:x", "count": "1"})
    has(text_of(again, 404), "No run waits for this change any more")


@pytest.mark.django_db
def test_the_api_can_do_as_much(pair: dict[str, str], admin_api: Caller) -> None:
    anne = Caller(_anne())
    (listed,) = anne.get("/version-changes").json()
    counts = {"count": 3, "decidable": 2, "decided_by": None, "decided_at": None}
    assert listed == {**pair, **counts, "changes": ["sub-agent helper", "instructions"]}
    body = {**pair, "count": 3, "reason": "All fine."}
    assert admin_api.post("/version-changes", body).status_code == 403
    assert anne.post("/version-changes", {**body, "count": "3"}).status_code == 422
    done = anne.post("/version-changes", body).json()
    assert (done["continued"], [one["reason"] for one in done["left"]]) == (
        2,
        ["anne started this run, so another person must decide."],
    )
    (listed,) = anne.get("/version-changes").json()
    assert (listed["count"], listed["decidable"], listed["decided_by"]) == (1, 0, "anne")


@pytest.mark.django_db
def test_an_admin_withdraws_a_decision(
    pair: dict[str, str], admin: Client, admin_api: Caller, settings: Any
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    anne = log_in(_anne())
    anne.post(f"{PAGE}continue/", {**pair, "count": "3", "reason": "All <fine>."})
    (made,) = admin_api.get("/version-decisions").json()
    given = {**pair, "by": "anne", "reason": "All <fine>.", "count": 3}
    assert {name: value for name, value in made.items() if name != "at"} == given
    shows(admin, PAGE, "Decided changes", "All &lt;fine&gt;.", "when 3 runs waited")
    wrong = admin.post(f"{PAGE}withdraw/", {**pair, "reason": " "})
    has(text_of(wrong, 422), "is required to withdraw a decision", "<details open>")
    done = admin.post(f"{PAGE}withdraw/", {**pair, "reason": "It lends."}, follow=True)
    has(text_of(done), "Withdrawn.", "2 of them wait again", "3 runs wait")
    assert "Decided changes" not in text_of(done)
    assert admin_api.post("/version-decisions/withdraw", {**pair, "reason": "x"}).status_code == 404
    has(text_of(admin.post(f"{PAGE}withdraw/", pair), 404), "No decision on this change counts")
    anne.post(f"{PAGE}continue/", {**pair, "count": "3", "reason": "All fine."})
    again = admin_api.post("/version-decisions/withdraw", {**pair, "reason": "x"})
    assert again.json() == {"opened": 2, "left": 0}


@pytest.mark.django_db
def test_without_waiting_runs_the_page_says_so(admin: Client) -> None:
    shows(admin, PAGE, "No run waits at a version gate", hides=["Continue all"])
