"""Opens requests, and confirms exactly the approved call."""

import json
from functools import reduce
from operator import or_
from typing import Any
from uuid import RFC_4122, uuid4

import psycopg
import pytest
from django.db import transaction

from approvals import audit
from approvals.decisions import open_requests
from approvals.errors import TamperedWith
from approvals.models import AuditEntry, Request, ToolSchema
from approvals.queries.requests import approval
from approvals.requests import schemas, snapshot, verification
from runtime.core.digest import sha256_of
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds
from tests.support.office import Office, reseal

pytestmark = pytest.mark.django_db

DRAWN = 0xFFF << 64 | (1 << 62) - 1  # the bits of a UUIDv7 that are random


def decided(request: Request, bea: Actor, verdict: str = "approve") -> Request:
    seeds.decide(request, bea, verdict, "As agreed.")
    request.refresh_from_db()
    return request


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def refused(request: Request, **given: Any) -> str:
    with pytest.raises(NotConfirmed) as caught:
        seeds.verify_approval(request, **given)
    return str(caught.value)


# Opening


def test_a_request_is_the_picture_word_for_word(bea: Actor) -> None:
    args = {"b": 1.0, "a": ["é\u202e", None, {"n": 9007199254740991}], "huge": "x" * 20_000}
    shown = seeds.snapshot(seeds.run(), args=args)
    [request] = seeds.opened(shown)

    assert json.loads(request.args) == args
    assert list(json.loads(request.args)) == list(args)  # in the model's order
    assert json.loads(schemas.text_of(request.schema)) == shown.schema
    assert tuple(request.path) == shown.path
    for name in ("frame", "call", "tool", "effect", "risk", "sentence", "action_digest"):
        assert getattr(request, name) == getattr(shown, name)
    assert (request.run_id, request.requester) == (shown.run, "ada")
    assert (request.status, request.decided_by) == (Request.Status.PENDING, None)
    seeds.verify_approval(decided(request, bea))
    with pytest.raises(psycopg.errors.UniqueViolation), transaction.atomic():
        seeds.ask([shown])


def test_a_request_is_stored_without_redundant_parts() -> None:
    returned = {"type": "object", "title": "Mail"}
    request = seeds.pending(result_schema=returned)
    assert request.args == compact(seeds.ARGS)
    assert schemas.text_of(request.schema) == compact(seeds.SCHEMA)
    assert request.result_schema is None  # people report a result only in doubt
    assert seeds.in_doubt(result_schema=returned).result_schema == compact(returned)


def test_a_request_as_releases_before_stored_it_still_counts(bea: Actor) -> None:
    request = seeds.pending()
    reseal(
        [request],
        args=json.dumps(seeds.ARGS),
        schema=json.dumps(seeds.SCHEMA),
        result_schema='{"type": "string"}',
    )
    seeds.verify_approval(decided(request, bea))


def test_requests_of_one_turn_are_audited_in_the_order_of_its_calls() -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.snapshot(of, call=f"c2.{n}") for n in range(12)))
    found = Request.objects.filter(run=of).order_by("created_at")
    assert [one.call for one in found] == [one.call for one in requests]
    entries = AuditEntry.objects.filter(run=of).order_by("seq")
    assert [(one.actor, one.act, one.subject) for one in entries] == [
        (None, "requested", f"request {request.id}") for request in requests
    ]
    assert audit.verify(of) == 12


def test_a_gate_follows_the_audit_row_that_the_claim_has_read(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> Any:
        raise AssertionError("Postgres was asked")

    monkeypatch.setattr(open_requests, "last_audit_row", ask)
    run = office.start()
    assert office.approve(run).status == "completed"
    assert audit.verify(run) == 2


def test_ids_of_requests_are_in_the_order_of_their_time_and_differ() -> None:
    early, late, shown = seeds.moment(-1), seeds.moment(0), seeds.snapshot(uuid4())
    ids = [snapshot.row(shown, late).id for _ in range(100)]
    assert snapshot.row(shown, early).id < min(ids)
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
def test_a_request_that_cannot_be_read_starts_nothing(
    bea: Actor, changed: dict[str, Any], why: str
) -> None:
    """Also right after the same process has found all of it in order."""
    request = decided(seeds.pending(), bea)
    seeds.verify_decision(request)
    seeds.verify_approval(request)
    Request.objects.filter(pk=request.pk).update(**changed)
    assert why in refused(request)


# The schema of a tool is stored once; a request refers to it by its digest


@pytest.fixture
def fresh() -> None:
    """A process that has read no schema yet."""
    schemas._read.cache_clear()


def test_two_requests_of_a_tool_share_its_schema(fresh: None, bea: Actor) -> None:
    found = [seeds.pending() for _ in range(2)]
    assert {one.schema for one in found} == {sha256_of(seeds.SCHEMA)}
    assert [json.loads(row.body) for row in ToolSchema.objects.all()] == [seeds.SCHEMA]
    assert approval(found[0].id, actor=bea).schema == seeds.SCHEMA
    # One of the release before has it as text.
    Request.objects.filter(pk=found[1].pk).update(schema=json.dumps(seeds.SCHEMA))
    assert approval(found[1].id, actor=bea).schema == seeds.SCHEMA
    seeds.decide(found[1], bea)


@pytest.mark.parametrize("body", [None, "{}", "[" * 100_000])
def test_a_request_without_its_schema_is_not_decided(
    fresh: None, bea: Actor, body: str | None
) -> None:
    request = seeds.pending()
    if body is None:
        ToolSchema.objects.all().delete()
    else:
        ToolSchema.objects.update(body=body)
    assert "schema" in (verification.fault(request) or "")
    assert approval(request.id, actor=bea).schema is None
    with pytest.raises(TamperedWith):
        seeds.decide(request, bea)
