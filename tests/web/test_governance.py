"""What admins and reviewers put in force: policies, prompts, allowances and changes of versions."""

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import PublishedAgent
from agents.sdk import prompt
from approvals import clock
from approvals.governance import allowance_uses
from approvals.models import AllowanceAct, Approval, PolicyAct
from approvals.rules.policy import Group
from approvals.rules.policy_text import parse
from runtime.core.values.enums import GateKind
from tests.approvals.policies.office import TWO
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import has, log_in, shows, text_of
from tests.support.released import account_agent, released
from tests.support.seeds import Cast
from tests.support.specs import spec_of

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
    forged = PolicyAct(seq=2, act="confirmed", number=2, text="", by="anne", at=clock.read_time())
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


# Prompts


NAME = "hr/welcome"
PROMPT_PAGE = f"/prompts/{NAME}/"
CODE, FIRST = "In production: the text in the code", "In production: version 1"


def test_two_admins_put_a_version_in_production_and_take_it_back(admin: Client, cast: Cast) -> None:
    released(spec_of("welcomer", instructions=prompt(NAME, "Welcome {name}.")))
    seeds.person("anne", Group.ADMINS)
    anne = log_in(User.objects.get(username="anne"))
    shows(admin, "/prompts/", PROMPT_PAGE)
    shows(admin, PROMPT_PAGE, CODE, "Welcome {name}.")
    wrong = admin.post(PROMPT_PAGE, {"text": "Welcome {level}.", "note": "Kinder."})
    has(text_of(wrong, 422), "Nothing was changed.", "Welcome {level}.", 'value="Kinder."')
    saved = admin.post(PROMPT_PAGE, {"text": "Welcome {name}!", "note": "<Louder>."}, follow=True)
    has(text_of(saved), "Version 1", "&lt;Louder&gt;.", "by <bdi>admin</bdi>")
    admin.post(f"{PROMPT_PAGE}1/label/", {"label": "staging"})
    admin.post(f"{PROMPT_PAGE}1/propose/")
    shows(
        admin,
        PROMPT_PAGE,
        CODE,
        ">staging</span>",
        "proposed by <bdi>admin",
        hides=["Confirm version 1"],
    )
    shows(anne, PROMPT_PAGE, "Confirm version 1")
    anne.post(f"{PROMPT_PAGE}1/confirm/")
    shows(anne, PROMPT_PAGE, FIRST, hides=["Confirm version 1"])
    anne.post(f"{PROMPT_PAGE}0/propose/")
    shows(anne, PROMPT_PAGE, FIRST, hides=["Confirm the text in the code"])
    admin.post(f"{PROMPT_PAGE}0/confirm/")
    shows(admin, PROMPT_PAGE, CODE)


# Allowances


GIVEN = {
    "rule.0": "any",
    "values.0": "newhire",
    "rule.1": "between",
    "values.1": "1\n3\n",
    "count": "2",
    "days": "7",
}


def words(answer: Any, status: int = 200) -> str:
    """The words of a page, without its tags."""
    assert answer.status_code == status
    return " ".join(re.sub(r"<[^>]+>", "", answer.content.decode()).split())


def says(client: Client, place: str, *said: str, hides: tuple[str, ...] = ()) -> None:
    has(words(client.get(place)), *said, hides=hides)


@pytest.fixture
def cora(cast: Cast) -> Client:
    """Another reviewer."""
    seeds.person("cora", Group.REVIEWERS)
    return log_in(User.objects.get(username="cora"))


@pytest.mark.django_db(transaction=True)
def test_an_allowance_from_the_form_to_its_uses_and_its_end(
    bea: Client, cora: Client, admin: Client, office: Office, asked: Approval
) -> None:
    says(bea, "/allowances/", "No allowances yet")
    says(bea, f"/a/{asked.id}/", "Allow more calls like this…")
    says(bea, f"/a/{asked.id}/allow/", "username", "in this request: newhire", "Propose allowance")
    proposed = bea.post(f"/a/{asked.id}/allow/", GIVEN, follow=True)
    has(words(proposed), "A second person must confirm it.", "from 1 to 3", "Withdraw proposal")
    assert "Confirm allowance" not in words(proposed)
    place = f"/allowances/{AllowanceAct.objects.get().allowance}/"
    has(words(bea.post(f"{place}confirm/"), 409), "Another person must confirm")
    says(admin, place, "A second person must confirm it", hides=("Confirm allowance",))
    has(words(cora.post(f"{place}confirm/", follow=True)), "The allowance is in force.")
    allowance_uses.forget()
    run = office.start(args={"username": "second", "security_level": 2})
    passed = Approval.objects.get(run=run)
    says(bea, "/allowances/", "1 of 2 calls of Set privileges left", "confirmed by cora")
    says(bea, place, "Set the privileges of second to 2", "run started by ada")
    says(bea, f"/a/{passed.id}/", "Approved by an allowance", "this is use 1 of an allowance")
    says(bea, "/decisions/", "by an allowance of cora")
    says(bea, f"/runs/{run}/?tab=transcript", "the allowance of bea and cora")
    item = bea.get("/decisions.jsonl").getvalue().decode()
    assert '"channel": "allowance"' in item or '"channel":"allowance"' in item
    ended = admin.post(f"{place}revoke/", {"reason": "Too many."}, follow=True)
    has(words(ended), "The allowance is revoked.", "revoked by admin", "Too many.")
    has(words(admin.post(f"{place}revoke/"), 409), "was revoked before")


def test_a_wrong_limit_is_named_and_nothing_typed_is_lost(bea: Client, asked: Approval) -> None:
    wrong = {**GIVEN, "values.1": "one\n2", "count": "7"}
    page = words(bea.post(f"/a/{asked.id}/allow/", wrong), 422)
    has(page, "Correct the marked argument", "security_level needs JSON, such as 3")
    answer = bea.post(f"/a/{asked.id}/allow/", {**wrong, "values.1": "1\n2", "count": "many"})
    has(words(answer, 422), "count must be a whole number from 1 to 1000")
    body = answer.content.decode()
    has(body, 'value="many"', '<option value="between" selected>')
    assert not AllowanceAct.objects.exists()


def test_a_page_says_why_there_is_no_allowance(bea: Client, ada: Client, asked: Approval) -> None:
    says(ada, f"/a/{asked.id}/allow/", "ada started this run", hides=("Propose allowance",))
    says(ada, f"/a/{asked.id}/", hides=("Allow more calls",))


# Changes of versions


CHANGES_PAGE = "/version-changes/"


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
    shows(admin, "/overview/", "3 runs wait because their agents changed", CHANGES_PAGE)
    shows(
        admin, CHANGES_PAGE, "3 runs wait", "may not decide on actions", hides=["Continue 2 runs"]
    )
    anne = log_in(_anne())
    own = "anne started this run"
    shows(
        anne,
        CHANGES_PAGE,
        "Continue 2 runs",
        "<del>Be &lt;b&gt;kind.</del>",
        "sub-agent helper",
        own,
    )
    wrong = anne.post(f"{CHANGES_PAGE}continue/", {**pair, "count": "2", "reason": "All <fine>."})
    has(text_of(wrong, 422), "which is 3", "Nothing was decided", "All &lt;fine&gt;.", 'value="2"')
    for count in ("9" * 5000, "٣"):
        wrong = anne.post(f"{CHANGES_PAGE}continue/", {**pair, "count": count, "reason": "All."})
        has(text_of(wrong, 422), "which is 3")
    form = {**pair, "count": "3", "reason": "All <fine>."}
    done = anne.post(f"{CHANGES_PAGE}continue/", form, follow=True)
    has(text_of(done), "2 runs continue", "1 still wait", "decided by <bdi>anne</bdi>")
    assert Approval.objects.filter(decided_by="anne", reason="All <fine>.").count() == 2
    again = anne.post(f"{CHANGES_PAGE}continue/", {**pair, "after": "sha256:x", "count": "1"})
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
    anne.post(f"{CHANGES_PAGE}continue/", {**pair, "count": "3", "reason": "All <fine>."})
    (made,) = admin_api.get("/version-decisions").json()
    given = {**pair, "by": "anne", "reason": "All <fine>.", "count": 3}
    assert {name: value for name, value in made.items() if name != "at"} == given
    shows(admin, CHANGES_PAGE, "Decided changes", "All &lt;fine&gt;.", "when 3 runs waited")
    wrong = admin.post(f"{CHANGES_PAGE}withdraw/", {**pair, "reason": " "})
    has(text_of(wrong, 422), "is required to withdraw a decision", "<details open>")
    done = admin.post(f"{CHANGES_PAGE}withdraw/", {**pair, "reason": "It lends."}, follow=True)
    has(text_of(done), "Withdrawn.", "2 of them wait again", "3 runs wait")
    assert "Decided changes" not in text_of(done)
    assert admin_api.post("/version-decisions/withdraw", {**pair, "reason": "x"}).status_code == 404
    has(
        text_of(admin.post(f"{CHANGES_PAGE}withdraw/", pair), 404),
        "No decision on this change counts",
    )
    anne.post(f"{CHANGES_PAGE}continue/", {**pair, "count": "3", "reason": "All fine."})
    again = admin_api.post("/version-decisions/withdraw", {**pair, "reason": "x"})
    assert again.json() == {"opened": 2, "left": 0}


@pytest.mark.django_db
def test_without_waiting_runs_the_page_says_so(admin: Client) -> None:
    shows(admin, CHANGES_PAGE, "No run waits at a version gate", hides=["Continue all"])
