"""Odd values on the pages and in the API: in the row, beside the value, and in the comparison."""

import re
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Approval
from approvals.reads import inbox
from approvals.requests import snapshot
from runtime.core.values.enums import GateKind, Risk
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.office import BEA, Office
from tests.support.pages import has, in_order, queries_at_most, send, shows, text, text_of
from tests.support.seeds import Cast


def _approved(*calls: Any) -> None:
    """Approvals of the last minutes by Bea, the newest last."""
    now = timezone.now()
    for n, args in enumerate(reversed(calls), 1):
        approval = snapshot.build_request(seeds.snapshot(uuid4(), args=args), now)
        approval.status, approval.decided_at = "approved", now - timedelta(minutes=n)
        approval.decided_by, approval.reason, approval.key_id = "bea", "", ""
        approval.statement, approval.signature = "", ""
        approval.save(force_insert=True)


def test_odd_values_of_an_edit_are_told_before_it_is_approved(bea: Client, office: Office) -> None:
    _approved(*({"username": f"user{n}", "security_level": 1 + n % 2} for n in range(30)))
    approval = office.request(office.start(args={"username": "grace", "security_level": 2}))
    for level, told in (("5", True), ("1", False)):
        form = {
            "digest": approval.approval_digest,
            "in.username": "grace",
            "in.security_level": level,
        }
        page = text_of(bea.post(f"/a/{approval.id}/edit/", form))
        words = "5 is in none of the last 30 approvals. Usually 1 or 2."
        has(
            page, "Approve with 1 change", *([words] if told else []), hides=[] if told else [words]
        )


def _card(page: str) -> str:
    found = re.search(r'aria-labelledby="similar".*?</section>', page, re.DOTALL)
    assert found
    return found[0]


def test_an_odd_value_is_told_in_the_row_above_the_call_and_in_the_api(
    bea: Client, bea_api: Caller, office: Office
) -> None:
    _approved(*({"username": f"user{n}", "security_level": 1 + n % 2} for n in range(30)))
    plain = office.request(office.start(args={"username": "grace", "security_level": 2}))
    odd = office.request(
        office.start(args={"username": "<b>\u200bhopper", "security_level": 5, "note": "x"})
    )
    short = "security_level: 5 is new"
    with queries_at_most(8):
        page = text(bea, "/inbox/")
    rows = dict(re.findall(r'data-id="([^"]+)"(.*?)</li>', page, re.DOTALL))
    has(rows[str(odd.id)], "username: invisible characters", short, "note: usually not given")
    has(rows[str(plain.id)], hides=["odd", "usual"])
    words = "5 is in none of the last 30 approvals. Usually 1 or 2."
    with queries_at_most(15):
        block = text(bea, odd).partition('id="odd"')[2].partition("</section>")[0]
    in_order(block, "Contains invisible characters: ⟦U+200B⟧ zero width space", words)
    has(block, "Not given in 30 of the last 30 approvals", hides=["<b>"])
    shows(bea, plain, "Nothing unusual beside the last 30 approvals", hides=['class="odd"'])
    found = bea_api.get(f"/approvals/{odd.id}").json()["oddities"]
    told = [(one["argument"], one["kind"]) for one in found]
    assert told == [("username", "invisible"), ("security_level", "unseen"), ("note", "unseen")]
    assert found[1]["text"] == words
    listed = {one["id"]: one["oddities"] for one in bea_api.get("/approvals").json()["items"]}
    assert (listed[str(odd.id)], listed[str(plain.id)]) == (found, [])
    seeds.decide(odd, BEA)
    assert bea_api.get(f"/approvals/{odd.id}").json()["oddities"] == found  # as it was decided


def test_a_call_in_doubt_is_compared_once_there_are_enough_approvals(
    bea: Client, cast: Cast
) -> None:
    doubt = seeds.in_doubt(args={"username": "newhire", "security_level": 3})
    shows(bea, doubt, "Started call", hides=['id="odd"'])
    _approved(*({"username": f"user{n}", "security_level": 1 + n % 2} for n in range(30)))
    shows(bea, doubt, 'id="odd"', "3 is in none of the last 30 approvals. Usually 1 or 2.")


def test_the_comparison_has_odd_values_first_and_changing_ones_last(
    bea: Client, office: Office
) -> None:
    past = [
        {"username": f"user{n}", "security_level": 3, "note": f"DE8937040044053201{n:04}"}
        for n in range(12)
    ]
    _approved(*past)
    last = Approval.objects.filter(status="approved")
    last.update(path=["hr_onboarding", "account_agent", "set_privileges"])
    office.approve(office.start(args=past[0]))  # a signed one to compare with
    args = {"username": "user99", "note": "DE89370400440532010001", "security_level": 4}
    card = _card(text(bea, office.request(office.start(args=args))))
    in_order(
        card,
        "security_level",
        "unusual",
        "<del>3</del>",
        "2 that differ every time",
        "username",
        "note",
    )
    has(card, "DE8937040044053201000<ins>1</ins>", hides=["Too little history"])
    again = _card(text(bea, office.request(office.start(args={**past[0], "username": "user98"}))))
    has(again, "only values that always differ have changed", "user<ins>98</ins>")


def test_a_short_history_is_told(bea: Client, office: Office, asked: Approval) -> None:
    office.approve(asked.run_id)
    approval = office.request(office.start(args={"username": "x", "security_level": 5}))
    shows(bea, approval, "Too little history yet (1 of 10)", hides=["unusual</span>"])


def test_a_call_at_high_risk_with_an_odd_value_is_the_first_of_the_inbox(
    bea: Client, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a later page; one at medium risk with an odd number, or without an odd value, keeps its place."""
    monkeypatch.setattr(inbox, "LIMIT", 3)
    _approved(*({"username": f"user{n}", "security_level": 1 + n % 2} for n in range(30)))
    run, now = seeds.run(), timezone.now()
    soon, later, last = (now + timedelta(hours=hours) for hours in (1, 2, 3))
    usual = {"username": "grace", "security_level": 2}
    odd = {"username": "grace", "security_level": 5}
    made = seeds.opened(
        seeds.snapshot(run, args=usual, expires_at=soon),
        seeds.snapshot(run, args=odd, risk=Risk.MEDIUM, expires_at=later),
        *(seeds.snapshot(run, args=usual, expires_at=at) for at in (last, None)),
        seeds.snapshot(run, args=usual, kind=GateKind.IN_DOUBT),
        seeds.snapshot(run, args=odd),
        seeds.snapshot(run, args=odd),
    )
    *plain, doubt, important, second = [str(approval.id) for approval in made]
    top = [doubt, important, second, *plain[:3]]

    def rows(query: str, **given: bool) -> list[str]:
        page = text(bea, f"/inbox/?{query}", **given)
        return re.findall(r'<li class="row" data-id="([^"]+)"', page)

    assert rows("") == top
    with queries_at_most(8):  # now that this process remembers the schema
        rows("")
    for query in ("sort=age", "q=risk:high", "group=risk", "view=others"):
        assert important not in rows(query)
    shown = ",".join([doubt, *plain[:3]])
    assert rows(f"known={shown}&more=", live=True) == top
    assert rows(f"known={important},{second},{shown}&more=", live=True) == []
    order = [important, second, *plain]
    for place, name in enumerate(order):
        page = text(bea, f"/a/{name}/")
        around = re.findall(r'rel="(?:prev|next)" href="/a/([^/]+)/"', page)
        assert around == [*order[:place][-1:], *order[place + 1 :][:1]]
    for approval, following in ((made[-2], second), (made[-1], plain[0])):
        assert send(bea, approval, "deny", reason="Not that.")["Location"] == f"/a/{following}/"
    assert rows("") == [doubt, *plain[:3]]


def test_at_medium_risk_a_look_alike_and_ten_times_the_usual_come_next(
    bea: Client, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After those at high risk, also from a later page, and at most three of each."""
    monkeypatch.setattr(inbox, "LIMIT", 3)
    _approved(*({"username": "newhire", "security_level": 100 + n} for n in range(30)))
    run = seeds.run()
    plain, ten_times = ({"username": "newhire", "security_level": n} for n in (110, 3_000))
    look_alike = {"username": "newh\u0456re", "security_level": 110}

    def opened(*calls: Any, risk: Risk = Risk.MEDIUM) -> list[str]:
        made = seeds.opened(*(seeds.snapshot(run, args=args, risk=risk) for args in calls))
        return [str(approval.id) for approval in made]

    usual = opened(*[plain] * 3)
    scale = opened(ten_times)
    alike = opened(*[look_alike] * 3)
    low = opened(look_alike, risk=Risk.LOW)
    high = opened(ten_times, risk=Risk.HIGH)
    with queries_at_most(8):
        page = shows(bea, "/inbox/", "Unusual: look at these first")
    listed = re.findall(r'<li class="row" data-id="([^"]+)"', page)
    assert listed == [*high, *alike, *usual]
    order = [*high, *alike, *usual, *scale, *low]
    for name, following in pairwise(order[:5]):
        found = re.findall(r'rel="next" href="/a/([^/]+)/"', text(bea, f"/a/{name}/"))
        assert found == [following]
    approval = Approval.objects.get(pk=alike[0])
    assert send(bea, approval, "deny", reason="No.")["Location"] == f"/a/{high[0]}/"
