"""The page of the policy: a draft and its effect, a second admin, and what a wrong draft loses."""

from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import PublishedAgent
from approvals import clock
from approvals.models import Approval, PolicyAct
from approvals.rules.policy import Group
from approvals.rules.policy_text import parse
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
    shows(bea, "/policies/deciders/", f"{warning} it now", "2 of <bdi>bea</bdi> <span")


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


DRAFT = "/policies/draft/"
RULE = {
    "name": "Refunds",
    "when": "args.amount > 100",
    "quorum_1": "2",
    "groups_1": ["reviewers"],
    "people_2": "bea, cora",
    "reason": "on",
    "expires": "3",
    "expires_unit": "days",
    "on_expiry": "fail",
}


def draft_of(page: str) -> str:
    """Return the text of the draft on a page."""
    return unescape(
        page.rsplit("spellcheck", maxsplit=1)[-1]
        .split(">\n", 1)[1]
        .split("</textarea>", maxsplit=1)[0]
    )


def test_a_rule_is_added_changed_moved_and_removed_by_forms(admin: Client, anne: Client) -> None:
    has(text_of(admin.post(DRAFT, {"text": TWO, "act": "edit"})), "Name of the rule", "save:1")
    form = {"text": TWO, "act": "save:1", **RULE}
    page = text_of(admin.post(DRAFT, form))
    has(page, "Every call where amount is above 100: 2 reviewers, then bea or cora, with a reason")
    has(page, "expires after 3 days: the run fails", hides=["Name of the rule"])
    page = text_of(admin.post(DRAFT, {"text": draft_of(page), "act": "up:1"}))
    assert [rule.name for rule in parse(draft_of(page)).rules] == ["Refunds", "Two"]
    edited = text_of(admin.post(DRAFT, {"text": draft_of(page), "act": "edit:0"}))
    has(edited, 'value="bea, cora"', 'value="Refunds"', "save:0")
    page = text_of(admin.post(DRAFT, {"text": draft_of(page), "act": "remove:1"}))
    assert [rule.name for rule in parse(draft_of(page)).rules] == ["Refunds"]
    shown = text_of(admin.post(DRAFT, {"text": "rules: [{name: A}]", "act": "show"}))
    assert draft_of(shown) == "rules: [{name: A}]"
    assert not PolicyAct.objects.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "must have a name"),
        ({"name": "Two"}, "has two rules with the name Two"),
        ({"quorum_1": "0"}, "quorum must be a whole number from 1 to 10"),
        ({"quorum_1": "many"}, "must be a whole number"),
        ({"when": "args."}, "when"),
        ({"on_expiry": "answer", "answer": "{"}, "must be JSON"),
        ({"on_expiry": "approve"}, "is not a choice"),
    ],
)
def test_a_wrong_rule_stays_in_its_form(
    admin: Client, anne: Client, change: dict[str, str], words: str
) -> None:
    page = text_of(admin.post(DRAFT, {"text": TWO, "act": "save:1", **RULE, **change}), 422)
    has(page, words, "Name of the rule", "bea, cora")
    assert draft_of(page) == TWO


@pytest.mark.parametrize(
    "rule",
    [
        '{name: A, people: ["a, b"]}',
        "{name: A, groups: [gone]}",
        "{name: A, stages: [{}, {quorum: 2}, {people: [bea]}, {people: [cora]}]}",
        "{name: A, stages: [{}, {people: [bea]}]}",
    ],
)
def test_a_rule_that_the_form_cannot_say_is_shown_as_yaml_and_left_alone(
    admin: Client, anne: Client, rule: str
) -> None:
    text = f"rules:\n  - {rule}\n"
    page = text_of(admin.post(DRAFT, {"text": text, "act": "edit:0"}))
    if rule.endswith("{}, {people: [bea]}]}"):
        has(page, "Name of the rule")
    else:
        has(page, "The form has no fields for all of this rule", hides=["Name of the rule"])
    assert draft_of(page) == text


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
