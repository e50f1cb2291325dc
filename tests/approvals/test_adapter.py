"""Opens requests, and confirms exactly the approved call."""

import json
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any
from uuid import RFC_4122, uuid4

import psycopg
import pytest
from django.db import connection, transaction

from approvals import audit
from approvals.adapter import Approvals
from approvals.models import AuditEntry, Request
from approvals.requests import schemas, snapshot
from runtime.core.enums import Decision, EffectClass, Risk, Verdict
from runtime.errors import KeyMissing
from runtime.ports.access import Actor
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import Approvals as ApprovalsPort
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds
from tests.support.office import reseal

pytestmark = pytest.mark.django_db

approvals: ApprovalsPort = Approvals()
DRAWN = 0xFFF << 64 | (1 << 62) - 1  # the bits of a UUIDv7 that are random


def approved(bea: Actor, **given: Any) -> Request:
    return decided(seeds.pending(**given), bea)


def decided(request: Request, bea: Actor, verdict: str = "approve") -> Request:
    seeds.decide(request, bea, verdict, "As agreed.")
    request.refresh_from_db()
    return request


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def refused(request: Request, action_digest: str | None = None) -> str:
    with pytest.raises((NotConfirmed, KeyMissing)) as caught:
        approvals.verify_approval(
            gate=request.gate, action_digest=action_digest or request.action_digest
        )
    return str(caught.value)


# Opening


@pytest.mark.parametrize("gated", [True, False])
def test_a_call_waits_where_its_tool_says_so(gated: bool) -> None:
    how: Any = {"effect": EffectClass.IDEMPOTENT, "risk": Risk.HIGH, "deadline": 10.0}
    info = CallInfo(tool="t", gated=gated, sentence="", schema={}, schema_digest="", **how)
    assert approvals.requires_approval(info) is gated


def test_a_request_is_the_picture_word_for_word() -> None:
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


def test_a_request_is_stored_without_redundant_parts() -> None:
    returned = {"type": "object", "title": "Mail"}
    request = seeds.pending(result_schema=returned)
    assert request.args == compact(seeds.ARGS)
    assert schemas.text_of(request.schema) == compact(seeds.SCHEMA)
    assert request.result_schema is None  # people report a result only in doubt
    assert seeds.in_doubt(result_schema=returned).result_schema == compact(returned)
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_indexes WHERE indexdef LIKE '%%approvals_request%%nonce%%'")
        assert cursor.rowcount == 0


def test_a_request_as_releases_before_stored_it_still_counts(bea: Actor) -> None:
    request = seeds.pending()
    reseal(
        [request],
        args=json.dumps(seeds.ARGS),
        schema=json.dumps(seeds.SCHEMA),
        result_schema='{"type": "string"}',
    )
    decided(request, bea, "approve")
    seeds.verify_approval(request)


def test_opening_is_audited_as_an_act_of_the_system() -> None:
    of = seeds.run()
    requests = seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    entries = AuditEntry.objects.filter(run=of).order_by("seq")
    assert [(one.actor, one.act, one.subject) for one in entries] == [
        (None, "requested", f"request {request.id}") for request in requests
    ]
    assert audit.verify(of) == 2


def test_requests_of_one_turn_keep_the_order_of_its_calls() -> None:
    of = seeds.run()
    requests = seeds.opened(*(seeds.snapshot(of, call=f"c2.{n}") for n in range(12)))
    found = Request.objects.filter(run=of).order_by("created_at")
    assert [one.call for one in found] == [one.call for one in requests]


def test_ids_of_requests_are_in_the_order_of_their_time() -> None:
    early, late = (
        snapshot.row(seeds.snapshot(uuid4()), at).id for at in (seeds.moment(-1), seeds.moment(0))
    )
    assert early < late
    assert {(one.version, one.variant) for one in (early, late)} == {(7, RFC_4122)}


def test_ids_of_requests_of_one_time_differ() -> None:
    at, shown = seeds.moment(0), seeds.snapshot(uuid4())
    ids = [snapshot.row(shown, at).id for _ in range(100)]
    assert len(set(ids)) == 100
    # Its time, version and variant apart, each bit is drawn.
    assert reduce(or_, (one.int ^ ids[0].int for one in ids)) == DRAWN


def test_a_gate_is_asked_about_once() -> None:
    shown = seeds.snapshot(seeds.run())
    seeds.opened(shown)
    with pytest.raises(psycopg.errors.UniqueViolation), transaction.atomic():
        seeds.ask([shown])


def test_gates_map_to_their_requests() -> None:
    request = seeds.pending()
    assert approvals.requests_by_gate([request.gate, uuid4()]) == {request.gate: request.id}
    nothing: Sequence[Any] = []
    assert approvals.requests_by_gate(nothing) == {}


# Confirming


@pytest.mark.parametrize("args", [{}, {"level": 1.0, "text": "é\u202e\U0001f642", "none": None}])
def test_arguments_survive_being_stored(bea: Actor, args: dict[str, Any]) -> None:
    request = approved(bea, args=args)
    seeds.verify_approval(request)


def test_a_call_without_a_request_does_not_start(bea: Actor) -> None:
    request = approved(bea)
    with pytest.raises(NotConfirmed, match="the gate has no request"):
        approvals.verify_approval(gate=uuid4(), action_digest=request.action_digest)


def test_nothing_starts_that_is_pending_or_denied(bea: Actor) -> None:
    request = seeds.pending()
    assert refused(request) == "the request is pending"
    decided(request, bea, "deny")
    assert refused(request) == "the request is denied"


def test_another_action_does_not_start(bea: Actor) -> None:
    request = approved(bea)
    other = seeds.snapshot(request.run_id, args={"username": "new.hire", "security_level": 9})
    assert "to start" in refused(request, other.action_digest)


def test_an_approval_of_another_gate_does_not_count(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of), seeds.snapshot(of, call="c2.1"))
    decided(first, bea, "approve")
    assert refused(second, first.action_digest) == "the request is pending"


# Changes that an attacker with database access might make between the approval and the start

MORE = json.dumps({"username": "new.hire", "security_level": 9})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"args": MORE}, "stored call"),
        ({"args": "{"}, "stored call"),
        ({"args": "[" * 2_000}, "stored call"),
        ({"args": '{"username": NaN}'}, "stored call"),
        ({"schema": "{}"}, "stored call"),
        ({"path": ["hr_onboarding", "set_privileges"]}, "stored call"),
        ({"path": 7}, "stored call"),
        ({"path": {}}, "stored call"),
        ({"tool": "send_welcome_mail"}, "stored call"),
        ({"effect": "write"}, "stored call"),
        ({"effect": "harmless"}, "stored call"),
        ({"action_digest": "sha256:other"}, "stored call"),
        ({"frame": "0"}, "stored request"),
        ({"call": "c9.9"}, "stored request"),
        ({"risk": "low"}, "stored request"),
        ({"sentence": "Read a file"}, "stored request"),
        ({"nonce": "other"}, "stored request"),
        ({"policy_version": "0"}, "stored request"),
        ({"requester": "cyril"}, "stored request"),
        ({"request_digest": "sha256:other"}, "stored request"),
        ({"kind": "in_doubt"}, "stored request"),
        ({"kind": "rubber_stamp"}, "stored request"),
        ({"not_before": seeds.moment(-60)}, "stored request"),
        ({"result_schema": "{}"}, "stored request"),
        ({"decided_by": ""}, "stored decider"),
        ({"decided_by": "ada"}, "stored decider"),
        ({"decided_at": seeds.moment(-1)}, "stored time"),
        ({"reason": "Because I say so."}, "stored reason"),
        ({"statement": "{}"}, "differs from the signed one"),
        ({"signature": "00" * 64}, "differs from the signed one"),
        ({"key_id": "other"}, "is not in the ring"),
        ({"seal": "00" * 32}, "differs from the sealed one"),
        ({"expires_at": seeds.moment(60)}, "stored request"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_changed_request_starts_nothing(bea: Actor, changed: dict[str, Any], why: str) -> None:
    """Also right after the same process has found all of it in order."""
    request = approved(bea)
    digest = request.action_digest
    decision = Decision(verdict=Verdict.APPROVE, by="bea", reason="As agreed.")
    seeds.verify_decision(request, decision)
    seeds.verify_approval(request)

    Request.objects.filter(pk=request.pk).update(**changed)
    assert why in refused(request, digest)


def test_arguments_changed_with_their_digest_start_nothing(bea: Actor) -> None:
    request = approved(bea)
    other = seeds.snapshot(request.run_id, args=json.loads(MORE))
    Request.objects.filter(pk=request.pk).update(args=MORE, action_digest=other.action_digest)
    assert "stored request" in refused(request, other.action_digest)


def test_a_request_of_another_run_starts_nothing(bea: Actor) -> None:
    request, other = approved(bea), approved(bea)
    Request.objects.filter(pk=request.pk).update(run=other.run_id)
    assert "stored request" in refused(request)
