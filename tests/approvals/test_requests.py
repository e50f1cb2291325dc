"""The read side: who sees what waits, in which order, in pieces, and at which cost."""

import json
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any
from uuid import RFC_4122, UUID, uuid4

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from ninja.testing import TestClient
from pytest_django import DjangoAssertNumQueries

from approvals.decisions import open_requests
from approvals.errors import NotFound, TamperedWith
from approvals.models import Approval, AuditEntry, ToolSchema
from approvals.reads import approval_views as queries
from approvals.reads import filters, inbox
from approvals.reads.approval_views import read_approval
from approvals.reads.inbox import View
from approvals.requests import snapshot, verification
from approvals.rights import access
from approvals.rights.principals import find_principal
from approvals.signed import audit
from approvals.web.api.requests import router
from runtime.control.verification import verify
from runtime.core.run.continuation import MAX_REFUSALS
from runtime.core.values.enums import Risk
from runtime.core.values.json_values import hash_value
from runtime.errors import InvalidInput
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds
from tests.support.fake_ports import ask, turns
from tests.support.office import Office, reseal

pytestmark = pytest.mark.django_db


def test_the_inbox_lists_decidable_requests_by_deadline(ada: Actor, bea: Actor) -> None:
    late = seeds.pending(requester="ada", expires_at=seeds.moment(900))
    soon = seeds.pending(requester="cyril", expires_at=seeds.moment(600))
    never = seeds.pending(requester="cyril")
    seeds.decide(seeds.pending(requester="cyril"), bea)
    doubt = seeds.in_doubt(requester="cyril")

    principal = find_principal(bea)
    mine = inbox.read_page(principal, view=View.MINE)
    assert [item.id for item in mine.items] == [soon.id, late.id, never.id]
    assert mine.items[0].sentence == soon.sentence
    assert [item.id for item in inbox.list_in_doubt(principal)] == [doubt.id]
    assert inbox.count_requests(principal) == inbox.Counts(mine=4, in_doubt=1, for_others=0)
    assert mine.next is None
    ids = [None, soon.id, late.id, never.id, None]
    for number, item in enumerate(mine.items):
        assert inbox.find_previous_and_next(principal, item) == (ids[number], ids[number + 2])

    own = inbox.read_page(find_principal(ada), view=View.MINE)
    assert [item.id for item in own.items] == [soon.id, never.id]
    assert inbox.count_requests(find_principal(ada)).for_others == 1
    denial = queries.read_approval(late.id, actor=ada).denial
    assert denial is not None
    assert denial.code == "requester"
    assert queries.read_approval(late.id, actor=bea).denial is None


def test_unknown_risks_hide_no_request(ada: Actor, bea: Actor, cyril: Actor, admin: Actor) -> None:
    """Postgres refuses it, but the owner of the table can drop the constraint and write one."""
    request = seeds.pending(requester="ada")
    with pytest.raises(IntegrityError, match="approval_risk"), transaction.atomic():
        Approval.objects.filter(pk=request.pk).update(risk="nothing")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE approvals_approval DROP CONSTRAINT approval_risk")
    Approval.objects.filter(pk=request.pk).update(risk="nothing")
    people = (ada, bea, cyril, admin, Actor(person="stranger"))
    for view, seen in ((View.MINE, [bea]), (View.OTHERS, [ada, admin])):
        pages = {actor: inbox.read_page(find_principal(actor), view=view).items for actor in people}
        assert [actor for actor in people if pages[actor]] == seen
        assert all(pages[actor][0].tampered for actor in seen)
    assert inbox.count_requests(find_principal(cyril)) == inbox.Counts(
        mine=0, in_doubt=0, for_others=0
    )
    assert Run.objects.filter(access.AccessService().select_readable_runs(bea)).exists()
    assert not Run.objects.filter(access.AccessService().select_readable_runs(cyril)).exists()
    client = Client()
    client.force_login(User.objects.get(username="bea"))
    for path in ("/inbox/", f"/a/{request.id}/"):
        assert "Tampered with" in client.get(path).content.decode()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("limit", value) for value in (0, 201)),
        *(("cursor", text) for text in ("", "x", "é", "fHw", "MjAyNi0xMS0yMXxub25l", "a" * 5_000)),
        ("status", "maybe"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_by_name(bea: Actor, field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        queries.list_approvals(bea, **{field: value})
    assert caught.value.field == field
    assert queries.list_approvals(bea, limit=200).items == ()


@pytest.mark.parametrize("rows", [1, 40])
def test_reading_takes_the_same_queries_for_any_number_of_rows(
    bea: Actor, rows: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    of = seeds.run()
    approvals = seeds.opened(*(seeds.snapshot(of) for _ in range(rows)))
    with django_assert_num_queries(1):  # besides that of rights, which takes no ORM
        queries.list_approvals(bea)
    with django_assert_num_queries(1):
        queries.read_approval(approvals[0].id, actor=bea)


# The filter of the inbox: input is only ever text


@pytest.fixture
def made() -> dict[str, UUID]:
    run = seeds.run()
    high, low = seeds.opened(
        seeds.snapshot(run, risk=Risk.HIGH, requester="ada"),
        seeds.snapshot(run, risk=Risk.LOW, requester="cyril"),
    )
    Approval.objects.filter(pk=low.id).update(
        sentence="Send 100% of the_mail to c:\\new", tool="send_mail", path=["hr_mail", "send_mail"]
    )
    return {"high": high.id, "low": low.id}


@pytest.mark.parametrize(
    ("q", "names"),
    [
        ("", {"high", "low"}),
        ("PRIVILEGES level", {"high"}),
        ('"level 3"', {"high"}),
        ('"3 level"', set()),
        ("cyril", {"low"}),
        ("account_agent", {"high"}),
        ("risk:high", {"high"}),
        ("RISK:low mail", {"low"}),
        ("agent:hr", {"high", "low"}),
        ("agent:send", set()),
        ("tool:send", {"low"}),
        ("by:ada", {"high"}),
        ("100%", {"low"}),
        ("1%", set()),
        ("the_mail", {"low"}),
        ("c:\\new", {"low"}),
        ("';--", set()),
        ("agent:%", set()),
    ],
)
def test_a_filter_finds(made: dict[str, UUID], q: str, names: set[str]) -> None:
    found = Approval.objects.filter(filters.build_condition(q)).values_list("pk", flat=True)
    assert set(found) == {made[name] for name in names}


# The API: a body cannot get ahead of the rights


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(router)


def test_an_approval_has_the_promised_fields(client: TestClient, bea: Actor) -> None:
    request = seeds.pending()
    answer = client.get(f"/approvals/{request.id}", auth=bea).json()
    promised = {
        "id": str(request.id),
        "run": str(request.run_id),
        "gate": str(request.gate),
        "kind": "approval",
        "frame": "0.c1.0",
        "call": "c2.0",
        "tool": "set_privileges",
        "args": seeds.ARGS,
        "path": list(seeds.PATH),
        "risk": "high",
        "confirm": "new.hire",
        "status": "pending",
        "digest": request.approval_digest,
        "requester": "ada",
        "origin": ["ada"],
        "expires_at": None,
        "not_before": None,
        "result_schema": None,
        "edited_preview": None,
        "preview": None,
        "policy_version": "1",
        "rule": None,
        "quorum": 1,
        "voted": [],
        "changes_requested": False,
        "revises": None,
        "revision": 1,
        "next_step": None,
        "undecidable_at": None,
        "allowance": None,
        "allowance_use": None,
        "external": None,
        "late_outcomes": [],
    }
    assert {name: answer[name] for name in promised} == promised
    assert set(answer) - set(promised) == {
        "sentence", "created_at", "decided_by", "decided_at", "effective_at", "reason", "removed_at",
        "tampered", "edited", "oddities", "acts_for", "decided_for", "first_expires_at",
    }  # fmt: skip


def test_a_list_comes_in_pages_even_with_equal_times(client: TestClient, bea: Actor) -> None:
    of = seeds.run()
    approvals = seeds.opened(*(seeds.snapshot(of) for _ in range(3)))
    doubt = seeds.in_doubt(not_before=seeds.moment(5))
    seeds.decide(approvals[2], bea)
    Approval.objects.filter(run=of).update(created_at=approvals[0].created_at)
    ids = sorted(str(one.id) for one in approvals)
    pending = sorted(str(one.id) for one in approvals[:2])

    def listed(query: str) -> tuple[list[str], str | None]:
        answer = client.get(f"/approvals?{query}", auth=bea).json()
        return [item["id"] for item in answer["items"]], answer["next"]

    assert listed("") == listed("kind=any") == ([*ids, str(doubt.id)], None)
    assert listed("kind=approval&status=pending") == (pending, None)
    assert listed("kind=in_doubt") == ([str(doubt.id)], None)
    first, cursor = listed(f"run={of}&limit=2")
    assert first == ids[:2]
    assert listed(f"run={of}&cursor={cursor}") == (ids[2:], None)
    with pytest.raises(InvalidInput) as caught:
        listed("kind=unknown")
    assert caught.value.field == "kind"


def test_a_call_in_doubt_is_settled_and_null_is_a_result(client: TestClient, bea: Actor) -> None:
    request = seeds.in_doubt()
    path = f"/runs/{request.run_id}/gates/{request.gate}/settle"
    body: dict[str, Any] = {"outcome": "happened", "reason": "It is there."}
    with pytest.raises(InvalidInput):
        client.post(path, json=body, auth=bea)
    found = client.post(path, json={**body, "result": None}, auth=bea).json()
    assert (found["gate"], found["kind"]) == (str(request.gate), "in_doubt")
    said = (found["status"], found["decided_by"], found["reason"])
    assert said == ("answered", "bea", "It is there.")


@pytest.mark.parametrize("body", [{}, {"verdict": [], "digest": {}, "reason": 5}])
def test_without_permission_any_body_gets_not_found(
    client: TestClient, cyril: Actor, bea: Actor, body: dict[str, object]
) -> None:
    path = f"/approvals/{seeds.pending().id}/decision"
    with pytest.raises(NotFound):
        client.post(path, json=body, auth=cyril)
    with pytest.raises(InvalidInput):
        client.post(path, json=body, auth=bea)


@pytest.mark.parametrize("name", ["1", "not-an-id", str(uuid4())])
def test_an_unknown_object_is_not_found(client: TestClient, bea: Actor, name: str) -> None:
    with pytest.raises(NotFound):
        client.get(f"/approvals/{name}", auth=bea)
    for path in (f"/approvals/{name}/decision", f"/runs/{name}/gates/{uuid4()}/settle"):
        with pytest.raises(NotFound):
            client.post(path, json={}, auth=bea)


DRAWN = (1 << 62) - 1  # the bits of the id that are random


def decided(request: Approval, bea: Actor, verdict: str = "approve") -> Approval:
    seeds.decide(request, bea, verdict, "As agreed.")
    request.refresh_from_db()
    return request


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def refused(request: Approval, **given: Any) -> str:
    with pytest.raises(NotConfirmed) as caught:
        seeds.verify_approval(request, **given)
    return str(caught.value)


# Opening: the request says what the engine asked


def test_a_request_is_the_picture_word_for_word(bea: Actor) -> None:
    args = {"b": 1.0, "a": ["é\u202e", None, {"n": 9007199254740991}], "huge": "x" * 20_000}
    shown = seeds.snapshot(seeds.run(), args=args)
    [request] = seeds.opened(shown)

    assert json.loads(request.args) == args
    assert list(json.loads(request.args)) == list(args)  # in the model's order
    assert json.loads(snapshot.read_schema_text(request.schema)) == shown.schema
    assert tuple(request.path) == shown.path
    for name in ("frame", "call", "tool", "effect", "risk", "sentence", "action_digest"):
        assert getattr(request, name) == getattr(shown, name)
    assert (request.run_id, request.requester) == (shown.run, "ada")
    assert (request.status, request.decided_by) == (Approval.Status.PENDING, None)
    seeds.verify_approval(decided(request, bea))
    with pytest.raises(psycopg.errors.UniqueViolation), transaction.atomic():
        seeds.ask([shown])


def test_a_request_is_stored_without_redundant_parts() -> None:
    returned = {"type": "object", "title": "Mail"}
    request = seeds.pending(result_schema=returned)
    assert request.args == compact(seeds.ARGS)
    assert snapshot.read_schema_text(request.schema) == compact(seeds.SCHEMA)
    assert str(request.result_schema).startswith("sha256:")
    assert snapshot.read_schema_text(str(request.result_schema)) == compact(returned)
    assert seeds.in_doubt(result_schema=returned).result_schema == compact(returned)


def test_a_request_with_the_text_of_a_schema_starts_nothing(bea: Actor) -> None:
    request = decided(seeds.pending(), bea)
    reseal([request], schema=compact(seeds.SCHEMA))
    assert "stored call" in refused(request)


def test_requests_of_one_turn_are_audited_in_the_order_of_its_calls() -> None:
    of = seeds.run()
    approvals = seeds.opened(*(seeds.snapshot(of, call=f"c2.{n}") for n in range(12)))
    found = Approval.objects.filter(run=of).order_by("created_at")
    assert [one.call for one in found] == [one.call for one in approvals]
    entries = AuditEntry.objects.filter(run=of).order_by("seq")
    assert [(one.actor, one.act, one.subject) for one in entries] == [
        (None, "requested", f"request {request.id}") for request in approvals
    ]
    assert audit.verify(of) == 12


def test_a_gate_follows_the_claims_audit_row(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> Any:
        raise AssertionError("Postgres was asked")

    monkeypatch.setattr(open_requests, "read_last_audit_row", ask)
    run = office.start()
    assert office.approve(run).status == "completed"
    assert audit.verify(run) == 2


def test_ids_of_requests_are_in_the_order_of_their_time_and_differ() -> None:
    late, shown = seeds.moment(0), seeds.snapshot(uuid4())
    ids = [snapshot.build_request(shown, late).id for _ in range(100)]
    assert snapshot.build_request(shown, late - timedelta.resolution).id < min(ids)
    assert {(one.version, one.variant) for one in ids} == {(7, RFC_4122)}
    assert len(set(ids)) == 100
    # Its time, version and variant apart, each bit is drawn.
    assert reduce(or_, (one.int ^ ids[0].int for one in ids)) == DRAWN


# Confirming


def test_only_the_approved_call_starts(bea: Actor) -> None:
    of = seeds.run()
    first, second, third = seeds.opened(*(seeds.snapshot(of) for _ in range(3)))
    decided(first, bea)
    seeds.verify_approval(first)
    assert refused(second) == "the request is pending"  # although it is the same call
    assert refused(decided(third, bea, "deny")) == "the request is denied"
    other = seeds.snapshot(of, args={"username": "new.hire", "security_level": 9})
    assert "to start" in refused(first, action_digest=other.action_digest)
    first.gate = uuid4()
    assert refused(first) == "the gate has no request"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"args": "{"}, "stored call"),
        ({"args": "[" * 2_000}, "stored call"),
        ({"args": '{"username": NaN}'}, "stored call"),
        ({"path": 7}, "stored call"),
        ({"effect": "harmless"}, "stored call"),
        ({"kind": "rubber_stamp"}, "stored request"),
        ({"run": uuid4()}, "stored request"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_unreadable_requests_start_nothing(bea: Actor, changed: dict[str, Any], why: str) -> None:
    request = decided(seeds.pending(), bea)
    seeds.verify_decision(request)
    seeds.verify_approval(request)
    Approval.objects.filter(pk=request.pk).update(**changed)
    assert why in refused(request)


# The schema of a tool is stored once; a request refers to it by its digest


@pytest.fixture
def fresh() -> None:
    """A process that has read no schema yet."""
    snapshot._read.cache_clear()


def test_two_requests_of_a_tool_share_its_schema(fresh: None, bea: Actor) -> None:
    found = [seeds.pending() for _ in range(2)]
    assert {one.schema for one in found} == {hash_value(seeds.SCHEMA)}
    assert [json.loads(row.body) for row in ToolSchema.objects.all()] == [seeds.SCHEMA]
    assert read_approval(found[0].id, actor=bea).schema == seeds.SCHEMA


@pytest.mark.parametrize("body", [None, "{}", "[" * 100_000])
def test_a_request_without_schema_is_not_decided(fresh: None, bea: Actor, body: str | None) -> None:
    request = seeds.pending()
    if body is None:
        ToolSchema.objects.all().delete()
    else:
        ToolSchema.objects.update(body=body)
    assert "schema" in (verification.find_fault(request) or "")
    assert read_approval(request.id, actor=bea).schema is None
    with pytest.raises(TamperedWith):
        seeds.decide(request, bea)


def test_a_turn_that_ends_its_run_leaves_no_request(office: Office) -> None:
    """The gate of its first call is opened and closed in one step."""
    level = {"username": "newhire", "security_level": 1}
    office.effects.agents["account_agent"] = turns(
        ask(("set_privileges", level), *[("nothing", {"n": n}) for n in range(MAX_REFUSALS)])
    )
    run = office.start()
    assert Run.objects.get(id=run).status == "failed"
    assert not Approval.objects.filter(run=run).exists()
    assert verify(run).findings == ()
