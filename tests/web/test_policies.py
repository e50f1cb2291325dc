"""The page of the policy: a draft and its effect, a second admin, and what a wrong draft loses."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import PublishedAgent
from approvals import clock
from approvals.models import Approval, PolicyAct
from approvals.rules.roles import Group
from tests.approvals.policies.office import TWO
from tests.support import seeds
from tests.support.pages import has, log_in, shows, text_of
from tests.support.seeds import Cast

ACT = "/policies/2/"


@pytest.fixture
def anne(cast: Cast, published: None) -> Client:
    """A second admin, and a second reviewer, so that two people can decide."""
    seeds.person("cora", Group.REVIEWERS)
    seeds.person("anne", Group.ADMINS)
    return log_in(User.objects.get(username="anne"))


def test_a_second_admin_confirms_and_its_author_cannot(
    admin: Client, anne: Client, bea: Client
) -> None:
    shows(bea, "/policies/", "In force: version 1", hides=["Change the policy"])
    saved = admin.post("/policies/add/", {"text": TWO}, follow=True)
    has(text_of(saved), "Version 2 is saved. It is not in force yet.", "Withdraw version 2")
    assert "Confirm version 2" not in text_of(saved)
    has(text_of(admin.post(f"{ACT}confirm/"), 409), "Another admin must confirm version 2")
    shows(
        bea, "/policies/", "not in force yet", "Every call: 2 reviewers", "new", hides=["Withdraw"]
    )
    shows(anne, "/policies/", "Confirm version 2")
    has(text_of(anne.post(f"{ACT}confirm/", follow=True)), "In force: version 2", "Version 2 is in")
    assert bea.get("/policies/2.yaml").content.decode() == TWO
    has(text_of(anne.post(f"{ACT}withdraw/"), 409), "does not wait")
    assert bea.get("/policies/9.yaml").status_code == 404


def test_a_version_says_in_sentences_what_it_changes(
    admin: Client, anne: Client, bea: Client
) -> None:
    shows(bea, "/policies/", "There are no rules: every call")
    admin.post("/policies/add/", {"text": TWO})
    shows(bea, ACT, "Version 2 of the policy", "Every call: 2 reviewers", "new", TWO)
    anne.post(f"{ACT}confirm/")
    admin.post("/policies/add/", {"text": "rules: [{name: Two, quorum: 1}]"})
    shows(bea, "/policies/", "until now: <del>Every call: 2 reviewers</del>", "Changes<span")
    assert bea.get("/policies/9/").status_code == 404


def test_a_rule_that_too_few_can_meet_is_marked_before_and_after_a_person_is_disabled(
    admin: Client, anne: Client, bea: Client
) -> None:
    warning = "too few people can meet"
    PublishedAgent.objects.update(tools=[seeds.TOOL])
    admin.post("/policies/add/", {"text": "rules: [{name: Two, quorum: 2, people: [bea, cora]}]"})
    anne.post(f"{ACT}confirm/")
    shows(bea, "/policies/", "Every call: 2 of bea or cora", hides=[warning])
    shows(bea, "/policies/deciders/", "set_privileges", "2 of <bdi>bea</bdi>, <bdi>cora</bdi>")
    shows(
        admin, "/people/", "Without cora too few people can meet the rule", hides=["cannot be met"]
    )
    admin.post("/people/cora/disable/")
    shows(admin, "/people/", "<bdi>Two</bdi> cannot be met: too few people can meet it now")
    shows(bea, "/policies/", f"{warning} it now")
    shows(bea, "/policies/deciders/", f"{warning} it now", "2 of <bdi>bea</bdi></p>")


def test_a_draft_is_tried_on_past_requests_and_saves_nothing(
    admin: Client, anne: Client, asked: Approval
) -> None:
    tried = text_of(admin.post("/policies/try/", {"text": TWO}))
    has(tried, "1 of 1 request of the last 30 days", "needed 1 approval, ")
    has(tried, "would need approvals: 2 of reviewers, ", TWO)
    talk = "rules: [{name: Talk, reviewer_may_write: true}]"
    has(text_of(admin.post("/policies/try/", {"text": talk})), "reviewers may write to the run")
    same = text_of(admin.post("/policies/try/", {"text": "rules: []\n"}))
    has(same, "0 of 1 request")
    assert not PolicyAct.objects.exists()


def test_a_wrong_draft_names_its_line_and_stays(admin: Client, anne: Client) -> None:
    wrong = "rules: [{name: Mine, quorum: 0}]"
    for way in ("try", "add"):
        page = text_of(admin.post(f"/policies/{way}/", {"text": wrong}), 422)
        has(page, "line 1, rules[1].quorum: must be", wrong, "Nothing was changed")


def test_a_broken_policy_is_named_on_every_way(admin: Client, anne: Client) -> None:
    admin.post("/policies/add/", {"text": TWO})
    forged = PolicyAct(seq=2, act="confirmed", number=2, text="", by="anne", at=clock.now())
    forged.save(force_insert=True)
    why = "act 2 on the policy is not the one that was signed"
    has(text_of(admin.get("/policies/")), why)
    for answer in (
        admin.get("/policies/2.yaml"),
        admin.get("/policies/2/"),
        admin.post("/policies/add/", {"text": TWO}),
        admin.post(f"{ACT}confirm/"),
        admin.post(f"{ACT}withdraw/"),
    ):
        has(text_of(answer, 409), why)


def test_the_only_admin_waits_a_day(admin: Client, published: None) -> None:
    saved = admin.post(
        "/policies/add/", {"text": "rules: [{name: A, reason: required}]"}, follow=True
    )
    has(text_of(saved), "because no other admin could confirm it")
