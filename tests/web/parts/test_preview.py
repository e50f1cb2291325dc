"""A reviewer sees what a call would change, how much of what, and what differs from the approved preview."""

import json
import re
from html import unescape
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.models import Approval
from approvals.web.components.preview import card
from runtime.models import JournalEntry
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.pages import has, send, shows, text_of
from tests.support.seeds import Cast

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
    return render_to_string("approvals/_preview.html", {"preview": card(content)})


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
