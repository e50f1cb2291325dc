"""Parts of the page of a request."""

import json
import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.models import Approval
from approvals.web.components.arguments import list_arguments
from approvals.web.components.decision_form import REASONS
from approvals.web.components.preview import build_card
from runtime.core.run import frames
from runtime.core.values.enums import EffectClass
from runtime.core.values.verdicts import DENIED
from runtime.models import JournalEntry
from runtime.ports.effects import ToolRequest, ToolResult
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import Office, reseal
from tests.support.pages import has, queries_at_most, send, shows, text, text_of
from tests.support.released import account_agent, released
from tests.support.seeds import TOOL, Cast, published

SHOWN = {
    "summary": "Replaces one role",
    "changes": [{"what": "roles", "before": ["level-1"], "after": ["level-3"]}],
    "counts": {"accounts": 1},
    "targets": ["new.hire"],
    "warnings": ["the account is <i>9"],
}
OTHER = {
    "summary": "Replaces one role",
    "changes": [{"what": "roles", "before": [], "after": ["level-3"]}],
    "counts": {"accounts": 2},
    "targets": ["new.hire", "another"],
}


def previewed(**preview: Any) -> Approval:
    return seeds.pending(preview=preview)


def changed(before: Any, after: Any, *, what: str = "it") -> str:
    content = {"shown": {"changes": [{"what": what, "before": before, "after": after}]}}
    return render_to_string("approvals/_preview.html", {"preview": build_card(content)})


def test_a_sum_has_its_cents_if_the_change_names_the_currency() -> None:
    has(changed(0, 180.5, what="paid back, in euros"), ">180.50<")
    has(changed(0, 180.5, what="hours"), ">180.5<")


def test_the_card_has_every_part(bea: Client, cast: Cast) -> None:
    words = ('id="preview"', "Replaces one role", "accounts", "level-1", "level-3", "new.hire")
    page = shows(bea, previewed(shown=SHOWN), *words, "the account is &lt;i&gt;9", hides=["<i>9"])
    has(page, hides=["New approval needed", "new since the approval", "No preview"])


def test_a_difference_from_the_approved_preview_is_marked(bea: Client, cast: Cast) -> None:
    page = shows(bea, previewed(shown=OTHER, before=SHOWN), "New approval needed")
    has(strip_tags(page), "accounts: 2 approved: 1")
    cards = {
        name: page.partition(f'id="{name}"')[2].partition("</section>")[0]
        for name in ("odd", "preview")
    }
    assert cards["preview"].count("new since the approval") == 2  # a change and a person
    assert [card.count("no longer") for card in cards.values()] == [1, 1]  # a warning, a change
    shows(bea, previewed(missing="too slow", before=SHOWN), "There is no preview now")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (0, 180, ["0 → 180"]),
        ("400.00", "12500.50", ["400.00 → 12500.50"]),
        (None, "x", ["added x"]),
        (True, None, ["removed yes"]),
        (["a", "b"], ["b", "c"], ["removed a", "added c", "1 unchanged"]),
        (["a", "b"], ["b", "a"], ['["a", "b"] → ["b", "a"]']),  # only the order
        ({"x": {"y": 1}, "z": 2}, {"x": {"y": "1"}, "z": 2}, ["x › y: 1 → 1", "1 unchanged"]),
        ({"x": None}, {"y": None}, ["x: removed not set", "y: added not set"]),
        ("a\u202eb", "ab", ["a⟦U+202E⟧b → ab"]),
        ("<b>", "**b**", ["&lt;b&gt; → **b**"]),
        ("a\nb", "c", ["a\nb → c"]),
        ({"x": {"y": 1}}, {"x": [1]}, ['x: {"y": 1} → [1]']),
    ],
)
def test_a_change_is_said_in_words(before: Any, after: Any, words: list[str]) -> None:
    html = changed(before, after)
    lines = re.findall(r'<p class="(?:raw becomes|meta)">(.*?)</p>', html, re.DOTALL)
    spoken = [re.sub(r'<span class="vh">.*?</span>', "", line) for line in lines]
    assert [unescape(strip_tags(line)) for line in spoken] == [unescape(line) for line in words]
    assert "diffrow" not in html


LETTER = [f"Line {n} of the letter, which says something." for n in range(1, 41)]


@pytest.mark.parametrize(
    ("before", "after", "summary", "was", "added"),
    [
        (
            LETTER,
            [*LETTER[:7], "!", *LETTER[8:]],
            "1 line removed, 1 line added",
            LETTER[7:8],
            ["!"],
        ),
        (LETTER, [*LETTER, ""], "1 line added", [], [""]),  # a line break at the end
        (None, LETTER[:5], "5 lines added", [], LETTER[:5]),
        (LETTER[:5], None, "5 lines removed", LETTER[:5], []),
    ],
)
def test_a_long_text_is_compared_by_line(
    before: list[str] | None,
    after: list[str] | None,
    summary: str,
    was: list[str],
    added: list[str],
) -> None:
    texts = [None if lines is None else "\n".join(lines) for lines in (before, after)]
    html = changed(*texts)
    assert f"<summary>{summary}</summary>" in html
    assert re.findall(r"<del>(.*?)</del>", html) == was
    assert re.findall(r"<ins>(.*?)</ins>", html) == added
    assert LETTER[20] not in html  # unchanged, and far from a change


def test_many_lines_are_folded_and_none_is_left_out() -> None:
    assert '<details class="lines" open>' in changed("\n".join(LETTER), "\n".join(LETTER[1:]))
    assert '<details class="lines"><summary>62 lines removed' in changed(list(range(60)), [])
    many = changed("", "\n".join(f"line {n}" for n in range(300)))
    has(many, "changed in many lines", "line 299")


def test_the_page_says_why_there_is_no_preview(bea: Client, cast: Cast) -> None:
    shows(bea, previewed(missing="it took longer than 2 s"), "No preview: it took longer than 2 s")
    said = "The risk condition of pay failed: KeyError: '<i>9'"
    shows(bea, previewed(unjudged=said), "Treated as high risk", hides=["<i>9", 'id="preview"'])
    shows(bea, seeds.pending(), hides=['id="preview"', "Treated as high risk"])


@pytest.mark.parametrize("body", ['{"not', '{"schema":99,"at":"2026-12-01T00:00:00Z","events":[]}'])
def test_nothing_is_approved_on_a_page_that_cannot_show_everything(
    bea: Client, bea_api: Caller, asked: Approval, body: str
) -> None:
    JournalEntry.objects.filter(run_id=asked.run_id, position=2).update(body=body)
    why = "Part of the run&#x27;s journal cannot be read (entry 2)"
    shows(bea, asked, why, 'formnovalidate disabled aria-describedby="unshown"')
    has(text_of(send(bea, asked, "approve"), 409), why)
    changed = '{"username": "newhire", "security_level": 1}'
    has(text_of(send(bea, asked, "edit/approve", arguments=changed), 409), why)
    ways: list[dict[str, Any]] = [{"verdict": "approve"}]
    ways.append({"verdict": "edit", "arguments": json.loads(changed)})
    for way in ways:
        way["digest"] = asked.approval_digest
        refused = bea_api.post(f"/approvals/{asked.id}/decision", way)
        assert (refused.status_code, refused.json()["code"]) == (409, "not_shown")
    assert Approval.objects.get(pk=asked.pk).status == "pending"
    send(bea, asked, "deny", reason="because")
    assert Approval.objects.get(pk=asked.pk).status == "denied"


# Updates of the agent


SAYS = "The agent has changed since it asked"


def test_a_request_shows_what_changed_in_its_agent_since_it_asked(
    bea: Client, ada: Client, office: Office
) -> None:
    office.effects.released["account_agent"] = released(account_agent(instructions="Be <b>kind."))
    run = office.start()
    approval = Approval.objects.get(run=run)
    shows(bea, approval, hides=[SAYS])
    released(account_agent(instructions="Be <i>brief."))
    changed = ("<del>Be &lt;b&gt;kind.</del>", "<ins>Be &lt;i&gt;brief.</ins>")
    for reader in (bea, ada):
        shows(reader, approval, SAYS, "continues under it", *changed, hides=["version gate"])
    released(account_agent(instructions="Be <i>brief.", subagents=[]))
    shows(bea, approval, SAYS, "stops at a version gate", "sub-agent helper")
    office.approve(run)
    shows(bea, approval, hides=[SAYS])


def test_an_agent_above_the_one_that_asked_is_shown_too(bea: Client, office: Office) -> None:
    above = replace(account_agent(), name="hr_onboarding")
    office.effects.released["hr_onboarding"] = released(above)
    run = office.start()
    released(replace(above, instructions="Be brief."))
    shows(bea, Approval.objects.get(run=run), SAYS, "<bdi>Hr onboarding</bdi></b> was published")


def test_an_older_or_unknown_version_is_no_update(bea: Client, office: Office) -> None:
    newer = account_agent(tools=[])
    released(account_agent())
    office.effects.released["account_agent"] = released(newer)
    shows(bea, Approval.objects.get(run=office.start()), hides=[SAYS])
    office.effects.released["account_agent"] = "sha256:never published"
    shows(bea, Approval.objects.get(run=office.start()), hides=[SAYS])


# Arguments


def test_every_argument_is_listed_even_outside_the_schema() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}}
    shown = [
        (each.name, each.is_unknown, each.is_given)
        for each in list_arguments({"z": 1, "a": "y"}, schema)
    ]
    assert shown == [("a", False, True), ("z", True, True), ("b", False, False)]
    senseless: list[Any] = [None, True, [], {"properties": []}, {"properties": None}]
    for nothing in senseless:
        (only,) = list_arguments({"a": 1}, nothing)
        assert (only.name, only.value) == ("a", 1)
    (only,) = list_arguments(["a"], {})
    assert only.value == ["a"]


@pytest.mark.parametrize(
    ("titles", "labels"),
    [
        ({"full_name": "Full Name"}, ["Full name"]),
        ({"full_name": None}, ["full_name"]),
        ({"amount": "Discount"}, ["Discount (amount)"]),
        ({"amount": "x" * 61}, ["amount"]),
        ({"amount": " "}, ["amount"]),
        ({"amount": 7}, ["amount"]),
        ({"a_b": "A B", "A_b": "A B"}, ["A b (a_b)", "A b (A_b)"]),
    ],
)
def test_a_label_is_the_title_and_the_name_stands_behind_another(
    titles: dict[str, Any], labels: list[str]
) -> None:
    schema = {"properties": {name: {"title": title} for name, title in titles.items()}}
    rows = list_arguments(dict.fromkeys(titles, 1), schema)
    assert labels == [f"{row.label} ({row.name})" if row.is_renamed else row.label for row in rows]


# Comments


WORDS = "Her <lead> agreed."
REMARK = "Her &lt;lead&gt; agreed."


@pytest.mark.parametrize(
    ("way", "form"), [("approve", {}), ("answer", {"result": "3"}), ("deny", {})]
)
def test_a_comment_is_kept_with_each_verdict(
    bea: Client,
    ada: Client,
    bea_api: Caller,
    office: Office,
    asked: Approval,
    way: str,
    form: dict[str, str],
) -> None:
    send(bea, asked, way, reason=WORDS, **form)
    asked.refresh_from_db()
    assert json.loads(str(asked.statement))["reason"] == WORDS
    office.advance(asked.run_id)
    shows(ada, asked, REMARK)
    assert REMARK in text(ada, f"/runs/{asked.run_id}/?tab=transcript")
    assert bea_api.get(f"/approvals/{asked.id}").json()["reason"] == WORDS


# Denials


def test_the_page_has_the_words_that_the_agent_receives(bea: Client, asked: Approval) -> None:
    with queries_at_most(15):
        page = text(bea, asked)
    assert f"{DENIED}<span data-told>…</span>" in page
    for reason in REASONS:
        assert f'name="preset" value="{reason}" formnovalidate>{reason}</button>' in page


def test_a_tool_suggests_its_own_reasons(bea: Client, asked: Approval) -> None:
    published(
        "account_agent", input_schema={}, tools=[{**TOOL, "deny_reasons": ["Not <b>today</b>."]}]
    )
    suggested = 'value="Not &lt;b&gt;today&lt;/b&gt;."'
    shows(bea, asked, suggested, hides=REASONS)


@pytest.mark.parametrize(
    ("typed", "heard"), [("", REASONS[0]), ("It exists.", f"{REASONS[0]} It exists.")]
)
def test_without_scripts_a_suggested_reason_denies(
    bea: Client, office: Office, asked: Approval, typed: str, heard: str
) -> None:
    send(bea, asked, "deny", preset=REASONS[0], reason=typed)
    asked.refresh_from_db()
    assert (asked.status, asked.reason) == ("denied", heard)


# The second step


def test_a_token_cannot_leave_the_name_out(bea_api: Caller, asked: Approval) -> None:
    reseal([asked], risk="high")
    path, body = f"/approvals/{asked.id}", {"verdict": "approve", "digest": asked.approval_digest}
    refused = bea_api.post(f"{path}/decision", body)
    assert (refused.status_code, refused.json()["field"]) == (422, "confirm")
    confirm = bea_api.get(path).json()["confirm"]
    assert bea_api.post(f"{path}/decision", {**body, "confirm": confirm}).status_code == 200


def test_the_page_asks_for_the_name_and_keeps_the_comment(bea: Client, asked: Approval) -> None:
    reseal([asked], risk="high")
    shows(bea, asked, "Approve…", hides=['name="confirm"'])
    form = {"digest": asked.approval_digest, "reason": "Her lead agreed."}
    step = text_of(bea.post(f"/a/{asked.id}/approve/", form))
    has(step, "Type <b", "Yes, approve: <bdi>newhire</bdi>", "Her lead agreed.", "data-refused")
    wrong = text_of(send(bea, asked, "approve", confirm="<b>", reason="Her lead agreed."), 422)
    has(wrong, "that is not <bdi>newhire</bdi>", 'value="&lt;b&gt;"', "Her lead agreed.")
    again = text_of(send(bea, asked, "approve", reason="x" * 10_000), 422)
    has(again, 'name="confirm"', "Not approved: the reason")
    send(bea, asked, "approve", confirm="", confirmed="newhire", reason="Her lead agreed.")
    shows(bea, asked, "Approved by", "Her lead agreed.")


# The plan


HOSTILE = "Make <b>it</b>"
ITEM = {"item": "Set its\u202e level", "number": 2, "of": 3}


def _change(request: ToolRequest) -> ToolResult:
    return ToolResult(
        value=frames.make_plan_result(frames.change_plan(request.todo, **request.args))
    )


@pytest.fixture
def planned(office: Office) -> Approval:
    """The request of an agent that has ticked the first of three items."""
    office.effects.tools["plan"] = FakeTool(effect=EffectClass.READ, plan=True, body=_change)
    write = {"write": [HOSTILE, ITEM["item"], "Say so"]}
    office.effects.agents["account_agent"] = turns(
        ask(("plan", write), ("plan", {"done": [1], "doing": 2})),
        ask(("set_privileges", {"username": "newhire", "security_level": 3})),
        ask(("plan", {"done": [2]})),
        say("Ready."),
    )
    return office.request(office.start())


def test_run_and_request_show_the_plan_as_text_of_the_agent(
    ada: Client, bea: Client, office: Office, planned: Approval
) -> None:
    made = ("Make &lt;b&gt;it&lt;/b&gt;", "U+202E", "written by the agent")
    has(shows(ada, planned.run_id, "1 of 3 done", *made), hides=[HOSTILE, "\u202e"])
    page = shows(bea, planned, "item 2 of 3", "as it was when this was asked", *made)
    has(page, "1 of 3 done", hides=[HOSTILE, "\u202e", "<b><bdi>plan</bdi></b>"])
    office.approve(planned.run_id)
    shows(ada, planned.run_id, "2 of 3 done")
    shows(bea, planned, "item 2 of 3", "2 of 3 done")


def test_the_api_has_the_item(bea_api: Caller, planned: Approval) -> None:
    assert bea_api.get(f"/approvals/{planned.id}").json()["preview"] == {"plan": ITEM}


def test_without_a_plan_there_is_no_card(ada: Client, bea: Client, office: Office) -> None:
    run = office.start()
    shows(ada, run, hides=["Plan of"])
    shows(bea, office.request(run), hides=["Item of the plan"])
