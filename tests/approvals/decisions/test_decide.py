"""Decisions: their effects, every refusal in its order, and races with rights that end and gates that open."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals.decisions import commit
from approvals.errors import (
    AlreadyCancelled,
    AlreadyDecided,
    ApprovalError,
    DigestMismatch,
    NotFound,
    TamperedWith,
    TooEarly,
)
from approvals.models import Approval, AuditEntry, Token
from approvals.port.adapter import ApprovalService
from approvals.rights.principals import ALL_SCOPES, Scope
from approvals.rules.policy import Group
from approvals.signed import audit
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.store import pool
from tests.support import seeds
from tests.support.calls import around
from tests.support.seeds import GROUPS
from tests.support.threads import in_thread, together, wait_until_blocked

pytestmark = pytest.mark.django_db

# A name for text that Postgres cannot hold, which must be refused and not break.
HALF_A_PAIR = "\ud83d"


def test_a_decision_finds_its_request_and_run_by_id(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the index of pending requests or of idle runs, Postgres would scan all entries since the last VACUUM."""
    plans: list[str] = []

    def explain(connection: Any, statement: str, parameters: Any, **_: Any) -> None:
        with connection.transaction(force_rollback=True):
            connection.execute("SET LOCAL enable_seqscan = off")  # the tables have one row
            plans.append(str(connection.execute(f"EXPLAIN {statement}", parameters).fetchall()))

    approval = seeds.pending()
    around(monkeypatch, pool, "fetch_row", before=explain)
    seeds.decide(approval, bea)
    _, written = plans
    for plan in plans:
        assert "approval_pending" not in plan
        assert "run_idle" not in plan
    assert "Index Scan using approvals_approval_pkey" in written
    assert "Index Scan using runtime_run_pkey" in written


def test_approving_settles_the_gate_wakes_the_run_and_is_audited(
    bea: Actor,
    hints: list[UUID],
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    approval = seeds.pending()
    by_token = seeds.bearer(bea, Scope.APPROVALS_DECIDE)
    long = " Ask “HR” \u202efirst.\r\n\t".ljust(1_999, "\U0001f642") + " "  # as long as it may be
    with django_capture_on_commit_callbacks(execute=True):
        answer = seeds.decide(approval, by_token, reason=long)

    assert (answer.status, answer.decided_by) == ("approved", "bea")
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by, approval.reason) == ("approved", "bea", long)
    assert seeds.heard(approval) == Decision(verdict=Verdict.APPROVE, by="bea", reason=long)
    assert approval.decided_at == answer.decided_at
    assert Gate.objects.get(pk=approval.gate).state == Gate.State.DECIDED
    assert Run.objects.get(pk=approval.run_id).mailbox == 1
    assert hints == [approval.run_id]
    entry = AuditEntry.objects.get(run=approval.run_id, act="approved")
    assert (entry.actor, entry.token, entry.at) == ("bea", by_token.token, answer.decided_at)
    assert entry.subject == f"request {approval.id}"
    assert audit.verify(approval.run_id) == 2


@pytest.mark.django_db(transaction=True)
def test_a_decision_before_the_writing_wins(bea: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = seeds.pending()

    def overtake(*_: object) -> None:
        signed = {"statement": "{}", "signature": "", "key_id": "", "reason": "No."}
        Approval.objects.filter(pk=approval.pk).update(
            status="denied", decided_by="ada", decided_at=approval.created_at, **signed
        )

    around(monkeypatch, commit, "load", after=overtake)
    with pytest.raises(AlreadyDecided) as caught:
        seeds.decide(approval, bea)
    assert caught.value.decided_by == "ada"
    assert Gate.objects.get(id=approval.gate).state == "open"  # nothing of it was written
    assert not Signal.objects.exists()
    assert Run.objects.get(id=approval.run_id).mailbox == 0


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "0" * 64, HALF_A_PAIR])
def test_a_digest_that_is_not_the_current_one_decides_nothing(bea: Actor, digest: str) -> None:
    approval = seeds.pending()
    with pytest.raises(DigestMismatch):
        seeds.decide(approval, bea, "maybe", digest=digest)  # before the values are looked at
    assert seeds.untouched(approval)


def test_a_request_digest_is_valid_for_one_gate_only(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    assert first.action_digest == second.action_digest
    with pytest.raises(DigestMismatch):
        seeds.decide(first, bea, digest=second.approval_digest)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"digest": None}, "digest"),
        ({"digest": 7}, "digest"),
        ({"verdict": "APPROVE"}, "verdict"),
        ({"verdict": ["approve"]}, "verdict"),
        ({"verdict": HALF_A_PAIR}, "verdict"),
        ({"verdict": "deny", "reason": None}, "reason"),
        ({"verdict": "deny", "reason": " \n\t"}, "reason"),
        ({"reason": 5}, "reason"),
        ({"reason": "x" * 2_001}, "reason"),
        ({"reason": "a\x00b"}, "reason"),
        ({"reason": HALF_A_PAIR}, "reason"),
    ],
)
def test_a_wrong_value_is_refused_by_name(bea: Actor, changed: dict[str, Any], field: str) -> None:
    approval = seeds.pending()
    with pytest.raises(InvalidInput) as caught:
        seeds.decide(approval, bea, **changed)
    assert caught.value.extra == {"field": field}
    assert seeds.untouched(approval)


RESULT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "username": {"type": "string"},
        "roles": {"type": "array", "items": {"type": "integer", "maximum": 9}},
    },
    "required": ["username"],
}
RESULT = {"username": "new.hire", "roles": [3]}


def test_an_answer_carries_its_result_to_the_run(bea: Actor) -> None:
    approval = seeds.pending(result_schema=RESULT_SCHEMA)
    answer = seeds.decide(approval, bea, "answer", result=RESULT)
    assert (answer.status, answer.result_schema) == ("answered", RESULT_SCHEMA)
    said = Decision(verdict=Verdict.ANSWER, by="bea", result=RESULT)
    assert seeds.heard(approval) == said
    seeds.verify_decision(approval)
    with pytest.raises(NotConfirmed, match="differs from the signed one"):
        seeds.verify_decision(approval, replace(said, result={"username": "admin"}))
    with pytest.raises(NotConfirmed, match="the request is answered"):
        seeds.verify_approval(approval)
    unsaid = seeds.pending()  # its tool declares no result
    assert seeds.decide(unsaid, bea, "answer", result=None).result_schema is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "result"),
        ({"result": {"username": 7}}, "result.username"),
        ({"result": {"username": "x" * 64 * 1024}}, "result"),
        ({"result": RESULT, "grant": {"turns": 1}}, "grant"),
        ({"result": RESULT, "verdict": "approve"}, "result"),
        ({"result": RESULT, "verdict": "deny", "reason": "no"}, "result"),
    ],
    ids=range(6),
)
def test_an_answer_needs_a_fitting_result(bea: Actor, given: dict[str, Any], field: str) -> None:
    approval = seeds.pending(result_schema=RESULT_SCHEMA)
    with pytest.raises(InvalidInput) as caught:
        seeds.decide(approval, bea, **{"verdict": "answer", **given})
    assert caught.value.field == field
    assert seeds.untouched(approval)


# Calls in doubt


@pytest.mark.parametrize(
    ("outcome", "given", "status"),
    [
        ("happened", {"result": RESULT}, "answered"),
        ("run_again", {}, "approved"),
        ("give_up", {}, "denied"),
    ],
)
def test_settling_closes_the_gate_wakes_the_run_and_is_audited(
    bea: Actor, hints: list[UUID], outcome: str, given: dict[str, Any], status: str
) -> None:
    approval = seeds.in_doubt(result_schema=RESULT_SCHEMA, not_before=seeds.moment(-1))
    answer = seeds.settle(approval, bea, outcome, "As seen in the directory.", **given)

    assert (answer.kind, answer.status, answer.decided_by) == ("in_doubt", status, "bea")
    approval.refresh_from_db()
    assert (approval.status, approval.reason) == (status, "As seen in the directory.")
    assert Gate.objects.get(pk=approval.gate).state == Gate.State.DECIDED
    assert Run.objects.get(pk=approval.run_id).mailbox == 1
    body = json.loads(Signal.objects.get(run=approval.run_id).body)
    assert (body["verdict"], body["by"], body["result"]) == (outcome, "bea", given.get("result"))
    entry = AuditEntry.objects.get(run=approval.run_id, act=status)
    assert (entry.actor, entry.at) == ("bea", approval.decided_at)
    assert json.loads(entry.detail)["verdict"] == outcome
    assert audit.verify(approval.run_id) == 2


def test_a_gate_of_another_run_is_not_found(bea: Actor) -> None:
    approval, other = seeds.in_doubt(), seeds.in_doubt()
    for given in ({"run": other.run_id}, {"gate": uuid4()}, {"run": uuid4()}):
        with pytest.raises(NotFound):
            seeds.settle(approval, bea, **given)
    assert seeds.untouched(approval)


def test_running_again_waits_until_the_first_attempt_has_ended(bea: Actor) -> None:
    at = seeds.moment(60)
    approval = seeds.in_doubt(not_before=at)
    with pytest.raises(TooEarly) as caught:
        seeds.settle(approval, bea, "run_again", reason=5)  # before the values are looked at
    assert (caught.value.status, caught.value.code) == (409, "too_early")
    assert caught.value.extra == {"not_before": at.isoformat()}
    assert seeds.untouched(approval)
    assert seeds.settle(approval, bea, "give_up").status == "denied"  # which needs no waiting


def test_each_kind_of_request_refuses_the_others_verdicts(bea: Actor) -> None:
    waiting, doubt = seeds.pending(), seeds.in_doubt()
    for outcome in ("approve", "give_up"):
        with pytest.raises(InvalidInput) as caught:
            seeds.settle(waiting, bea, outcome)
        assert caught.value.field == "outcome"
    for verdict in ("approve", "give_up", "happened"):
        with pytest.raises(InvalidInput) as caught:
            seeds.decide(doubt, bea, verdict, "x")
        assert caught.value.field == "verdict"
    assert seeds.untouched(waiting)
    assert seeds.untouched(doubt)


@pytest.mark.parametrize(
    ("outcome", "given", "field"),
    [
        *((outcome, {}, "outcome") for outcome in ("approve", None, ["happened"], "Happened")),
        *(("give_up", {"reason": reason}, "reason") for reason in (None, " \n")),
        *((outcome, {"result": {}}, "result") for outcome in ("run_again", "give_up")),
        ("happened", {}, "result"),
        ("happened", {"result": None}, "result"),
        ("happened", {"result": {"username": "new.hire", "roles": [3, 12]}}, "result.roles.1"),
        ("happened", {"result": {"username": "a\x00b"}}, "result.username"),
        ("happened", {"result": {**RESULT, "more": float("nan")}}, "result.more"),
        ("happened", {"result": {**RESULT, "more": [{"$secret": "id:token"}]}}, "result"),
        ("happened", {"result": {"username": "x" * 64 * 1024}}, "result"),
    ],
    ids=range(15),
)
def test_an_outcome_its_reason_and_its_result_are_refused_by_name(
    bea: Actor, outcome: Any, given: dict[str, Any], field: str
) -> None:
    approval = seeds.in_doubt(result_schema=RESULT_SCHEMA)
    with pytest.raises(InvalidInput) as caught:
        seeds.settle(approval, bea, outcome, **given)
    assert caught.value.field == field
    assert seeds.untouched(approval)
    assert seeds.settle(approval, bea, "run_again", reason=None).reason == ""


# Refusals: for every kind of request one names its cause, and nothing is written


Refused = Callable[[Approval], Actor]
VERDICTS = {
    GateKind.APPROVAL: "approve",
    GateKind.HOLD: "continue",
    GateKind.LIMIT: "stop",
    GateKind.VERSION: "continue",
    GateKind.IN_DOUBT: "give_up",
}
kinds = pytest.mark.parametrize("kind", VERDICTS)


def decide(approval: Approval, actor: Actor, *, wrong: bool = False) -> None:
    """Decide in the way of its kind; `wrong` values are looked at after everything else."""
    verdict = "maybe" if wrong else VERDICTS[GateKind(approval.kind)]
    if approval.kind == GateKind.IN_DOUBT:
        seeds.settle(approval, actor, verdict, 1 if wrong else "No trace.")
    else:
        seeds.decide(approval, actor, verdict, "No.", digest="sha256:other" if wrong else ...)


def _person(name: str) -> Refused:
    return lambda approval: seeds.person(name, *GROUPS[name])


def _bearer(name: str, *without: str) -> Refused:
    return lambda approval: seeds.bearer(_person(name)(approval), *(ALL_SCOPES - {*without}))


def _disabled(approval: Approval) -> Actor:
    bea = _person("bea")(approval)
    User.objects.filter(username="bea").update(is_active=False)
    return bea


def _revoked(approval: Approval) -> Actor:
    bea = _bearer("bea")(approval)
    Token.objects.update(revoked_at=approval.created_at)
    return bea


def _stolen(approval: Approval) -> Actor:
    _person("bea")(approval)
    return Actor(person="bea", token=_bearer("cyril")(approval).token)


def _joined(approval: Approval) -> Actor:
    with transaction.atomic():
        ApprovalService().join(run=approval.run_id, person="bea")
    return _person("bea")(approval)


@kinds
@pytest.mark.parametrize(
    ("who", "code"),
    [
        (_person("cyril"), "not_found"),
        (_disabled, "not_found"),
        (_revoked, "not_found"),
        (_stolen, "not_found"),
        (_person("ada"), "requester"),
        (_bearer("ada"), "requester"),
        (_person("admin"), "not_eligible"),
        (_bearer("bea", Scope.APPROVALS_DECIDE), "scope"),
        (_joined, "origin"),
    ],
)
def test_without_the_right_nothing_is_decided(kind: GateKind, who: Refused, code: str) -> None:
    approval = seeds.pending(requester="ada", kind=kind)
    actor = who(approval)
    for wrong in (False, True):
        with pytest.raises((NotFound, Forbidden)) as caught:
            decide(approval, actor, wrong=wrong)
        assert caught.value.code == code
    assert seeds.untouched(approval)
    decide(approval, seeds.person("dan", Group.REVIEWERS))
    with pytest.raises((NotFound, Forbidden)):  # rights are refused before races
        decide(approval, actor)


def _close(approval: Approval, actor: Actor | None) -> None:
    with transaction.atomic():
        ApprovalService().close(
            run=approval.run_id, gates=[approval.gate], actor=actor, reason="Enough."
        )


@kinds
@pytest.mark.parametrize(
    ("end", "error", "extra"),
    [
        (lambda it: decide(it, Actor(person="ada")), AlreadyDecided, {"decided_by": "ada"}),
        (lambda it: _close(it, Actor(person="ada")), AlreadyCancelled, {"cancelled_by": "ada"}),
        (lambda it: _close(it, None), AlreadyCancelled, {"cancelled_by": None}),
    ],
)
def test_a_late_person_learns_what_came_first(
    ada: Actor,
    bea: Actor,
    kind: GateKind,
    end: Callable[[Approval], None],
    error: type[ApprovalError],
    extra: dict[str, Any],
) -> None:
    approval = seeds.pending(requester="cyril", kind=kind)
    end(approval)
    before = Approval.objects.values().get(pk=approval.pk)
    for actor, wrong in ((ada, True), (bea, False), (bea, True)):  # also the one who was first
        with pytest.raises(error) as caught:
            decide(approval, actor, wrong=wrong)
        assert caught.value.extra == extra
    assert Approval.objects.values().get(pk=approval.pk) == before


@pytest.mark.parametrize(
    ("verdict", "reason", "values"),
    [
        ("approve", "Fine.", {}),
        ("deny", "No.", {}),
        ("answer", "", {"result": {"message_id": "1"}}),
        ("edit", "", {"arguments": {**seeds.ARGS, "security_level": 1}}),
    ],
)
def test_the_same_decision_again_gets_the_same_answer(
    ada: Actor, bea: Actor, verdict: str, reason: str, values: dict[str, Any]
) -> None:
    approval = seeds.pending(requester="cyril")
    answer = seeds.decide(approval, bea, verdict, reason, **values)
    before = Approval.objects.values().get(pk=approval.pk)
    entries = AuditEntry.objects.count()
    again = seeds.decide(approval, bea, verdict, reason, **values)
    assert (again.status, again.decided_at, again.reason) == (
        answer.status,
        answer.decided_at,
        reason,
    )
    others: list[tuple[Actor, str, str, dict[str, Any]]] = [
        (ada, verdict, reason, values),
        (bea, "deny", "Other.", {}),
        (bea, verdict, f"{reason}!", values),
        (bea, verdict, reason, {**values, "digest": "sha256:0"}),
    ]
    if "result" in values:
        others.append((bea, verdict, reason, {"result": {"message_id": "2"}}))
    if "arguments" in values:
        others.append((bea, verdict, reason, {"arguments": {**seeds.ARGS, "security_level": 2}}))
    for actor, other, text, changed in others:
        with pytest.raises(AlreadyDecided) as caught:
            seeds.decide(approval, actor, other, text, **changed)
        assert caught.value.decided_by == "bea"
    Approval.objects.filter(pk=approval.pk).update(reason="Forged.")
    with pytest.raises(AlreadyDecided):  # the stored reason was not signed
        seeds.decide(approval, bea, verdict, "Forged.", **values)
    Approval.objects.filter(pk=approval.pk).update(reason=reason)
    assert Approval.objects.values().get(pk=approval.pk) == before
    assert AuditEntry.objects.count() == entries
    assert Signal.objects.filter(run=approval.run_id).count() == 1


@kinds
def test_a_gate_closed_without_its_request_takes_no_decision(bea: Actor, kind: GateKind) -> None:
    approval = seeds.pending(requester="cyril", kind=kind)
    Gate.objects.filter(pk=approval.gate).update(state=Gate.State.CLOSED)
    with pytest.raises(AlreadyDecided) as caught:
        decide(approval, bea)
    assert caught.value.extra == {"decided_by": None}


# On real connections, while rights end or other gates open


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (GateKind.APPROVAL, lambda bea: User.objects.filter(pk=bea.pk).update(is_active=False)),
        (GateKind.APPROVAL, lambda bea: bea.groups.clear()),
        (GateKind.IN_DOUBT, lambda bea: Token.objects.update(revoked_at=timezone.now())),
    ],
)
def test_a_decision_locks_and_reads_rights(kind: GateKind, end: Callable[[User], object]) -> None:
    seeds.person("bea", Group.REVIEWERS)
    owner = User.objects.get(username="bea")
    bea = seeds.bearer(Actor(person="bea"), *ALL_SCOPES)
    approval = seeds.pending(kind=kind)
    act = seeds.settle if kind is GateKind.IN_DOUBT else seeds.decide
    refused: list[str] = []

    def decide() -> None:
        try:
            act(approval, bea)
        except NotFound as error:
            refused.append(error.code)

    with transaction.atomic():
        Run.objects.select_for_update().get(pk=approval.run_id)
        waiting = in_thread(decide)
        wait_until_blocked()
        end(owner)
    waiting.join(30)

    assert refused == ["not_found"]
    assert seeds.untouched(approval)


@pytest.mark.django_db(transaction=True)
def test_gates_that_open_while_others_are_decided_keep_one_chain() -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    of = seeds.run()
    waiting = seeds.opened(*(seeds.snapshot(of) for _ in range(10)))
    barrier = threading.Barrier(2, timeout=30)

    def review() -> None:
        barrier.wait()
        for approval in waiting:
            seeds.decide(approval, bea)

    def go_on() -> None:
        barrier.wait()
        for _ in range(10):
            seeds.opened(seeds.snapshot(of))

    together([review, go_on])
    assert audit.verify(of) == 30


@pytest.mark.django_db(transaction=True)
def test_no_decision_is_written_on_a_request_that_changed_since_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    approval, load = seeds.pending(), commit.load

    def change(approval_id: UUID, actor: Actor) -> commit.LoadedApproval | None:
        loaded = load(approval_id, actor)
        Approval.objects.filter(pk=approval_id).update(approval_digest="sha256:0")
        return loaded

    monkeypatch.setattr(commit, "load", change)
    with pytest.raises(TamperedWith):
        seeds.decide(approval, bea)
    approval.refresh_from_db()
    assert (approval.status, approval.statement) == ("pending", None)
