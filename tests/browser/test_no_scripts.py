"""Every verdict works in a browser without JavaScript, by the links, fields and buttons of the page alone.

access/test_keyboard.py approves and denies in this way, and access/test_batch.py decides several requests.
"""

from collections.abc import Callable

import pytest
from django.test import override_settings
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from approvals import clock
from approvals.models import Approval
from approvals.rules.policy import Demands, Group
from runtime.core.values.budgets import BudgetLimits
from tests.browser.conftest import window
from tests.support.office import Office, reseal
from tests.support.seeds import person

pytestmark = pytest.mark.browser

Asks = Callable[[Office], Approval]
RESULT = '{"message_id": "m-1"}'


def _call(office: Office) -> Approval:
    return office.request(office.start())


def _resealed(approval: Approval, **changes: object) -> Approval:
    reseal([approval], **changes)
    return approval


def _doubt(office: Office, risk: str = "low") -> Approval:
    return _resealed(office.in_doubt_request(office.in_doubt()), risk=risk, not_before=None)


TALK = Demands(rule="Talk", reviewer_may_write=True).stored()
# A button is pressed, a card unfolded, a link followed, or a field filled with a text.
PRESS, OPEN, FOLLOW = "press", "open", "follow"
CASES: dict[str, tuple[Asks, list[tuple[str, str]], str, str]] = {
    "approve a high risk": (
        lambda office: _resealed(_call(office), risk="high"),
        [("Approve…", PRESS), ("Type newhire", "newhire"), ("Approve", PRESS)],
        "Approved by bea",
        "approved",
    ),
    "request changes": (
        _call,
        [("More ways to act", PRESS), ("Remark", "Less."), ("Request changes", PRESS)],
        "Changes requested by bea",
        "denied",
    ),
    "answer": (
        _call,
        [
            ("More ways to act", PRESS),
            ("Give the result yourself", OPEN),
            ("Result", '"done"'),
            ("Answer instead", PRESS),
        ],
        "Answered instead by bea",
        "answered",
    ),
    "write": (
        lambda office: _resealed(_call(office), rule=TALK),
        [
            ("More ways to act", PRESS),
            ("Write to the run", OPEN),
            ("Message to the agent", "Mind the gap."),
            ("Send", PRESS),
        ],
        "Set the privileges of newhire",
        "pending",
    ),
    "answer a question": (
        lambda office: office.question("Which cost centre pays?", {"type": "string"}),
        [("Answer", "4711"), ("Answer", PRESS)],
        "Answered by bea",
        "answered",
    ),
    "edit": (
        _call,
        [
            ("Edit", FOLLOW),
            ("security_level", "1"),
            ("Show the changes", PRESS),
            ("Approve with 1 change", PRESS),
        ],
        "Approved with changes by bea",
        "approved",
    ),
    "happened": (
        _doubt,
        [("Result", RESULT), ("It happened", PRESS)],
        "It happened, as reported by bea",
        "answered",
    ),
    "run again": (
        _doubt,
        [("Run it again", PRESS)],
        "To be run again, approved by bea",
        "approved",
    ),
    "run a high risk again": (
        lambda office: _doubt(office, "high"),
        [("Run it again…", PRESS), ("#confirm", "newhire"), ("Run it again", PRESS)],
        "To be run again, approved by bea",
        "approved",
    ),
    "give up": (
        _doubt,
        [("#give-up-reason", "Lost."), ("Give up", PRESS)],
        "Given up by bea",
        "denied",
    ),
    "continue": (Office.held, [("Continue", PRESS)], "Continued by bea", "approved"),
    "allow more": (
        lambda office: office.short(BudgetLimits(turns=1)),
        [("More turns", "5"), ("Allow", PRESS)],
        "Continued by bea",
        "approved",
    ),
    "stop": (
        Office.held,
        [("#reason", "No."), ("Stop the run", PRESS)],
        "The run was stopped by bea",
        "denied",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_verdict_works_without_scripts(
    chromium: Browser, live_server: LiveServer, office: Office, case: str
) -> None:
    asks, steps, heading, status = CASES[case]
    approval = asks(office)
    with window(chromium, live_server.url, java_script_enabled=False) as desk:
        desk.log_in("bea")
        desk.open(f"/a/{approval.id}/")
        for what, how in steps:
            _do(desk.page, what, how)
        expect(desk.page.get_by_role("heading", name=heading)).to_be_visible()
    approval.refresh_from_db()
    assert approval.status == status


# What people do beside a verdict, in turn: where, the steps, and what the page says after them.
ACTS: tuple[tuple[str, list[tuple[str, str]], str], ...] = (
    (
        "/a/{asked}/",
        [
            ("More ways to act", PRESS),
            ("Ask the agent", OPEN),
            ("Your inquiry", "Why?"),
            ("Ask the agent", PRESS),
        ],
        "Waiting for the agent's answer.",
    ),
    (
        "/a/{asked}/",
        [("People and policy", OPEN), ("Comment for people", "Seen."), ("Add comment", PRESS)],
        "Seen.",
    ),
    (
        "/a/{asked}/",
        [
            ("More ways to act", PRESS),
            ("Extend the deadline", OPEN),
            ("#extend-reason", "Her lead is away."),
            ("Extend", PRESS),
        ],
        "Extended.",
    ),
    ("/a/{asked}/", [("More ways to act", PRESS), ("Claim", PRESS)], "Claimed by you"),
    ("/a/{asked}/", [("More ways to act", PRESS), ("Release", PRESS)], "Released."),
    (
        "/a/{asked}/",
        [
            ("More ways to act", PRESS),
            ("Hand over…", FOLLOW),
            ("To", "=dora"),
            ("Note", "Yours."),
            ("Hand over", PRESS),
        ],
        "Handed to dora by bea: Yours.",
    ),
    ("/a/{asked}/allow/", [("Propose allowance", PRESS)], "A second person must confirm it"),
    (
        "/inbox/?q=risk:medium",
        [("Save this view", OPEN), ("#view-name", "Medium"), ("Save", PRESS)],
        "Saved: Medium",
    ),
    (
        "/account/",
        [
            ("Name a deputy while you are away", OPEN),
            ("First day", "{today}"),
            ("Last day", "{today}"),
            ("Deputy", "=dora"),
            ("form[action*=away] button", PRESS),
        ],
        "decides in your place",
    ),
    ("/account/", [("End my absence", PRESS)], "The absence of bea has ended."),
    (
        "/account/notices/",
        [("Address", "bea@example.com"), ("form[action*=add] button", PRESS)],
        "Added. A first notice follows.",
    ),
)


def test_acts_beside_a_verdict_work_without_scripts(
    chromium: Browser, live_server: LiveServer, office: Office
) -> None:
    person("dora", Group.REVIEWERS)
    names = {"asked": str(_call(office).id), "today": f"{clock.read_time():%Y-%m-%d}"}
    with window(chromium, live_server.url, java_script_enabled=False) as desk:
        desk.log_in("bea")
        for path, steps, words in ACTS:
            desk.open(path.format(**names))
            for what, how in steps:
                _do(desk.page, what, how.format(**names))
            expect(desk.page.get_by_text(words).first).to_be_visible()


def test_undo_works_without_scripts(
    chromium: Browser, live_server: LiveServer, office: Office
) -> None:
    approval = _call(office)
    with (
        override_settings(SIGNOFF_UNDO_SECONDS=600),
        window(chromium, live_server.url, java_script_enabled=False) as desk,
    ):
        desk.log_in("bea")
        desk.open(f"/a/{approval.id}/")
        _do(desk.page, "Approve", PRESS)
        _do(desk.page, "Undo", PRESS)
        expect(desk.page.get_by_text("Undone. Waiting for a decision again.")).to_be_visible()
    approval.refresh_from_db()
    assert approval.status == "pending"


def _do(page: Page, what: str, how: str) -> None:
    match how:
        case "press" if what.startswith("form["):
            page.locator(what).click()
        case "press":
            page.get_by_role("button", name=what, exact=True).click()
        case "follow":
            page.get_by_role("link", name=what, exact=True).click()
        case "open":
            page.locator("summary", has_text=what).click()
        case _ if how.startswith("="):
            page.get_by_label(what, exact=True).select_option(how[1:])
        case _ if what.startswith("#"):
            page.locator(what).fill(how)
        case _:
            field = page.locator("input, textarea, select")
            page.get_by_label(what).and_(field).first.fill(how)
