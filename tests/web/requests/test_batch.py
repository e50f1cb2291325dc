"""Batches: the sheet of several requests, and the decision on each of them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval
from runtime.core.values.enums import EffectClass, GateKind, Risk
from runtime.core.values.json_values import hash_action, hash_value
from runtime.reads import time_limits
from tests.support import seeds
from tests.support.office import BEA, Office, reseal
from tests.support.pages import has, in_order, queries_at_most, shows, text, text_of
from tests.support.seeds import Cast

Waiting = Callable[..., list[Approval]]


def _rule(quorum: int, *, reason: bool = False) -> dict[str, Any]:
    """What a request stores whose rule demands so many people, or a reason."""
    stages = [{"quorum": quorum, "people": [], "groups": []}]
    rule = {"rule": "strict", "stages": stages, "reason": reason, "failed": ""}
    return {"rule": json.dumps(rule), "open_to": ["*"]}


def _person(place: int, **more: Any) -> dict[str, Any]:
    return {"username": f"person{place}", "security_level": 1, **more}


@pytest.fixture
def waiting(cast: Cast) -> Waiting:
    """Requests of medium risk with these arguments, each of a run of its own."""

    def wait(*args: Any, **given: Any) -> list[Approval]:
        given = {"risk": Risk.MEDIUM, **given}
        return [seeds.pending(args=one, **given) for one in args]

    return wait


def _sheet(*approvals: Approval) -> str:
    return "/batch/?" + "&".join(f"item={approval.id}" for approval in approvals)


def _post(client: Client, *approvals: Approval, verdict: str = "approve", **form: Any) -> Any:
    """Send the form of the sheet with all these requests ticked, as it showed them."""
    items = [f"{approval.id}:{approval.approval_digest}" for approval in approvals]
    return client.post(_sheet(*approvals), {"item": items, "verdict": verdict, **form})


def _ticked(page: str) -> list[str]:
    return re.findall(r'value="([0-9a-f-]{36}):[^"]+" id="[^"]+" data-call checked', page)


def _statuses(*approvals: Approval) -> list[str]:
    return [Approval.objects.get(pk=approval.pk).status for approval in approvals]


def test_the_table_shows_the_arguments_that_differ(bea: Client, waiting: Waiting) -> None:
    three = waiting(*(_person(place, note="the same") for place in range(3)))
    page = text(bea, _sheet(*three))
    head = page[page.index("<thead>") : page.index("</thead>")]
    has(head, "username", hides=["security_level", "note"])
    in_order(
        page, "The same in all 3", "security_level", "the same", "<thead>", "person0", "person2"
    )
    assert _ticked(page) == [str(approval.id) for approval in three]


def test_odd_requests_start_unticked(bea: Client, waiting: Waiting) -> None:
    for done in waiting(*(_person(place % 4, security_level=1) for place in range(20))):
        seeds.decide(done, BEA)
    plain, odd, invisible = waiting(
        _person(1), _person(1, security_level=5), _person(1, username="person1\u200b")
    )
    page = text(bea, _sheet(plain, odd, invisible))
    assert _ticked(page) == [str(plain.id)]
    in_order(page, "Usually 1 (last 20)", "invisible characters")


def test_a_preview_with_a_warning_starts_unticked(bea: Client, waiting: Waiting) -> None:
    preview = {"shown": {"summary": "One account", "warnings": ["it is the last admin"]}}
    (approval,) = waiting(_person(1), preview=preview)
    assert "<bdi>it is the last admin</bdi>" in shows(bea, "/inbox/")  # where a row is decided too
    page = shows(bea, _sheet(approval), "it is the last admin", "its preview has a warning")
    assert _ticked(page) == []


def test_a_page_without_time_to_look_ticks_nothing(
    bea: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "SOFT_SECONDS", 0.0)
    assert _ticked(shows(bea, _sheet(*waiting(_person(0))), "not checked for unusual values")) == []


def test_each_request_is_decided_for_itself(bea: Client, waiting: Waiting) -> None:
    plain, changed, gone, unticked = waiting(*(_person(place) for place in range(4)))
    page = text(bea, _sheet(plain, changed, gone, unticked))
    has(page, *(approval.approval_digest for approval in (plain, changed, gone)))
    seen = Approval.objects.get(pk=changed.pk)
    reseal([changed], sentence="Something else")
    seeds.decide(gone, BEA, "deny", "Not her.")
    answer = _post(bea, plain, seen, gone)
    has(
        text_of(answer),
        "Approved: 1 of 3",
        "The request has changed since you saw it.",
        "It was already denied by bea.",
    )
    assert _statuses(plain, changed, gone, unticked) == ["approved", "pending", "denied", "pending"]
    assert Approval.objects.get(pk=plain.pk).channel == "batch"
    shows(bea, "/decisions/", "together with others")
    seeds.verify_decision(plain)


def test_what_is_left_out_says_why_and_a_forged_form_does_not_approve_it(
    bea: Client, cyril: Client, waiting: Waiting, office: Office
) -> None:
    (plain,) = waiting(_person(0))
    missing = "1 of the selected requests does not exist"
    shows(cyril, _sheet(plain), missing, hides=["person0"])
    (high,) = waiting(_person(1), risk=Risk.HIGH)
    (several,) = waiting(_person(2))
    reseal([several], **_rule(2))
    (own,) = waiting(_person(3), requester="bea")
    (expired,) = waiting(_person(4))
    reseal([expired], expires_at=timezone.now().replace(year=2020))
    (again,) = waiting(_person(5), preview={"shown": {}, "before": {"summary": "Other"}})
    question = seeds.pending(kind=GateKind.QUESTION)
    doubt = seeds.in_doubt()
    halt = office.held()
    why = {
        high: "High risk",
        several: "2 people must approve it",
        own: "bea started this run",
        expired: "It has expired",
        again: "Its consequences changed",
        question: "An agent asks here",
        doubt: "Its outcome is unknown",
        halt: "An agent was stopped",
    }
    page = shows(bea, _sheet(plain, *why), *why.values(), "Left out of an approval: 8")
    assert _ticked(page) == [str(plain.id)]
    answer = _post(bea, plain, *why, reason="ok")
    has(text_of(answer), "Approved: 1 of 9", *why.values())
    assert set(_statuses(*why)) == {"pending"}
    assert Approval.objects.get(pk=plain.pk).status == "approved"


def test_a_denial_has_one_reason_and_may_name_high_risks(bea: Client, waiting: Waiting) -> None:
    plain, other = waiting(_person(0), _person(1))
    (high,) = waiting(_person(2), risk=Risk.HIGH)
    refused = text_of(_post(bea, plain, other, high, verdict="deny"), 422)
    has(refused, "The reason is required to deny", "Nothing was decided")
    answer = _post(bea, plain, other, high, verdict="deny", reason="Not this week.")
    has(text_of(answer), "Denied: 3 of 3")
    reasons = Approval.objects.filter(status="denied").values_list("reason", flat=True)
    assert list(reasons) == ["Not this week."] * 3


def test_only_calls_of_one_tool_are_approved_together(bea: Client, waiting: Waiting) -> None:
    approval, other = waiting(_person(0), _person(1))
    path = (*seeds.PATH[:-1], "send_mail")
    digest = hash_action(
        tool="send_mail",
        schema=hash_value(seeds.SCHEMA),
        args=_person(1),
        path=path,
        effect=EffectClass.IDEMPOTENT,
    )
    reseal([other], path=list(path), tool="send_mail", action_digest=digest)
    page = shows(bea, _sheet(approval, other), "Calls of 2 tools", hides=['value="approve"'])
    has(page, f'href="?item={approval.id}"', 'value="deny"')
    has(text_of(_post(bea, approval, other), 422), "must be calls of one tool by one agent")
    assert _statuses(approval, other) == ["pending", "pending"]
    has(text_of(_post(bea, approval, other, verdict="deny", reason="x")), "Denied: 2 of 2")


def test_a_batch_has_a_limit_and_many_are_counted(bea: Client, waiting: Waiting) -> None:
    many = waiting(*(_person(place) for place in range(51)))
    shows(bea, _sheet(*many), "At most 50 can be decided", "Take the first 50", status=422)
    has(text_of(_post(bea, *many, count="51"), 422), "At most 50 can be decided")
    page = text_of(_post(bea, *many[:21], reason="fine"), 422)
    has(page, "must be 21, the number of ticked requests", ">\nfine</textarea>")
    assert len(_ticked(page)) == 21
    assert set(_statuses(*many)) == {"pending"}
    has(text_of(_post(bea, *many[:21], count="21")), "Approved: 21 of 21")
    assert text_of(bea.get("/batch/")).count("No requests selected") == 1


def test_one_undo_takes_all_back(bea: Client, waiting: Waiting, settings: Settings) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    three = waiting(*(_person(place) for place in range(3)))
    has(text_of(_post(bea, *three)), "Undo all 3")
    Approval.objects.filter(pk=three[0].pk).update(effective_at=timezone.now())
    answer = bea.post("/batch/undo/", {"item": [approval.id for approval in three]})
    has(text_of(answer), "Undone: 2 of 3", "This decision has taken effect")
    assert _statuses(*three) == ["approved", "pending", "pending"]


def test_a_required_reason_that_is_missing_leaves_the_request_out(
    bea: Client, waiting: Waiting
) -> None:
    free, needy = waiting(_person(0), _person(1))
    reseal([needy], **_rule(1, reason=True))
    shows(bea, _sheet(free, needy), "The policy requires a reason")
    has(
        text_of(_post(bea, free, needy)), "Approved: 1 of 2", "The reason is required by the policy"
    )
    assert _statuses(free, needy) == ["approved", "pending"]


@pytest.mark.parametrize("number", [5, 50])
def test_the_sheet_takes_few_queries(bea: Client, waiting: Waiting, number: int) -> None:
    many = waiting(*(_person(place) for place in range(number)))
    with queries_at_most(20):
        text(bea, _sheet(*many))
    # Of each request the journal, beside the two statements of its decision, which are not counted here.
    with queries_at_most(10 + number):
        text_of(_post(bea, *many, count=str(number)))


def test_rows_have_boxes_where_they_can_be_decided_together(
    bea: Client, ada: Client, waiting: Waiting
) -> None:
    approval, other = waiting(_person(0), _person(1))
    seeds.pending(kind=GateKind.IN_DOUBT)
    page = text(bea, "/inbox/?group=kind")
    assert page.count('form="batch"') == 2
    has(page, f"item={approval.id}&amp;item={other.id}&amp;group=kind", "Decide these together")
    Approval.objects.all().delete()
    for _ in range(2):
        seeds.pending(kind=GateKind.QUESTION)
    shows(bea, "/inbox/?group=kind", hides=["Decide these together"])
    shows(ada, "/inbox/?view=others", hides=['form="batch"', 'id="batch"'])
