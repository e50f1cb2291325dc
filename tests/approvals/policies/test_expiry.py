"""What follows if no person decides: by the demands that the digest covers, and never an approval."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
import time_machine

from approvals import clock
from approvals.governance import policies
from approvals.models import Approval, AuditEntry, Vote
from approvals.people.accounts import disable, enable
from approvals.port import jobs
from approvals.port.adapter import ApprovalService
from approvals.port.jobs import Outlooks, record_escalations
from approvals.reads import deciders, inbox
from approvals.reads.inbox import View
from approvals.requests import verification
from approvals.rights import approval_rights
from approvals.rights.principals import find_principal
from approvals.rules import policy
from approvals.rules.policy import Demands, Escalation, Group, OnExpiry, Stage, decode_demands
from approvals.signed import audit, statements, votes
from runtime.core.values.enums import Decision, Verdict
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds

pytestmark = pytest.mark.django_db

ONE = "{name: One, match: {tool: set_privileges}, people: [bea]"
FAIL = f"rules: [{ONE}, on_expiry: fail}}]"
ANSWER = f"rules: [{ONE}, on_expiry: {{answer: {{level: 0}}}}}}]"
LADDER = """
rules:
  - name: One
    people: [bea]
    escalate: [{people: [cora], expires_after: 100}, {people: [dan], expires_after: 100}]
"""
LEVEL = seeds.object_of(level={"type": "integer"})


@pytest.fixture
def three(ada: Actor) -> list[Actor]:
    return reviewers("bea", "cora", "dan")


def expired(text: str, **given: Any) -> Approval:
    """Return a request under this policy whose deadline has passed, after its expiry."""
    approval = asked(text, expires_at=clock.read_time() - timedelta(seconds=1), **given)
    ApprovalService().expire(approval.gate)
    ApprovalService().expire(approval.gate)  # by another worker: nothing more
    approval.refresh_from_db()
    assert AuditEntry.objects.filter(run=approval.run_id, act="expired").count() == 1
    audit.verify(approval.run_id)
    return approval


# The policy, the tool's result schema, and the clock's decision: verdict, result, whether the run fails, reason
ENDS: dict[str, tuple[str, Any, tuple[Verdict, Any, bool, str]]] = {
    "denied": (f"rules: [{ONE}}}]", None, (Verdict.EXPIRE, None, False, "UTC.")),
    "fails": (FAIL, None, (Verdict.EXPIRE, None, True, "rule One ends the run.")),
    "answered": (ANSWER, LEVEL, (Verdict.ANSWER, {"level": 0}, False, "One gave this answer.")),
    "unfit": (
        ANSWER,
        seeds.object_of(name={"type": "string"}),
        (Verdict.EXPIRE, None, False, "has an answer that the tool could not return: result.name"),
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_consequence_is_that_of_the_rule_and_the_worker_verifies_it(
    three: list[Actor], end: str
) -> None:
    text, schema, (verdict, result, fails, reason) = ENDS[end]
    approval = expired(text, result_schema=schema)
    said = seeds.heard(approval)
    assert (said.verdict, said.result, said.by, approval.status) == (verdict, result, "", "expired")
    assert reason in said.reason
    assert seeds.verify_decision(approval, said) is fails
    others = [
        replace(said, verdict=Verdict.ANSWER, result={"level": 9}),
        replace(said, verdict=Verdict.APPROVE),
        replace(said, reason="No decision before then."),
    ]
    if verdict is not Verdict.EXPIRE:
        others.append(replace(said, verdict=Verdict.EXPIRE, result=None))
    for other in others:
        with pytest.raises(NotConfirmed):
            seeds.verify_decision(approval, other)


@pytest.mark.parametrize(("old", "new"), [("fail", "deny"), ('"rule":"One"', '"rule":"Two"')])
def test_a_changed_consequence_does_not_verify(three: list[Actor], old: str, new: str) -> None:
    approval = expired(FAIL)
    said = seeds.heard(approval)
    assert approval.rule is not None
    Approval.objects.filter(pk=approval.pk).update(rule=approval.rule.replace(old, new))
    with pytest.raises(NotConfirmed):
        seeds.verify_decision(approval, said)


def test_an_answer_that_its_tool_could_not_return_is_refused_when_saved(three: list[Actor]) -> None:
    tool = {**seeds.TOOL, "result_schema": LEVEL}
    seeds.published(input_schema={}, tools=[tool])
    policies.check(ANSWER)
    with pytest.raises(
        InvalidInput, match=r"One that set_privileges could not return: result.level"
    ):
        policies.check(ANSWER.replace("level: 0", "level: high"))


# Escalation

AT = datetime.fromisoformat("2030-01-01T12:00:00+00:00")


def test_the_steps_follow_from_the_last_deadline_and_only_add_people() -> None:
    found = Demands(
        rule="A",
        stages=(Stage(people=("bea",)), Stage()),
        escalate=(
            Escalation(seconds=60, people=("bo",)),
            Escalation(seconds=30, groups=("reviewers",), people=("di",)),
        ),
        on_expiry=OnExpiry.FAIL,
    )
    assert decode_demands(found.stored()) == found
    for seconds, people, step, due in (
        (-91, ("bea",), "escalate", -90),
        (-90, ("bea", "bo"), "escalate", -30),
        (-30, ("bea", "bo", "di"), "fail", 0),
    ):
        at = AT + timedelta(seconds=seconds)
        first, second = policy.compute_stages(found, AT, at)
        assert (first.people, second) == (people, Stage())
        follows = policy.find_next_step(found, AT, at)
        assert follows is not None
        assert (follows.step, follows.at) == (step, AT + timedelta(seconds=due))
    assert policy.compute_stages(found, None, AT) == found.stages  # a call in doubt has no deadline


def test_people_of_a_step_decide_from_its_time_on_and_the_worker_finds_the_same(
    three: list[Actor],
) -> None:
    _, cora, dan = three
    approval = asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150))
    with pytest.raises(Forbidden, match="rule One lets only other people"):
        seeds.decide(approval, dan)
    assert seeds.decide(approval, cora).status == "approved"
    approval.refresh_from_db()
    seeds.verify_approval(approval)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_begins_by_the_clock_of_postgres(three: list[Actor], hours: int) -> None:
    """As in an undo, which asks again whether its person may decide."""
    _, cora, dan = map(find_principal, three)
    approval = asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150))
    with time_machine.travel(datetime.now(UTC) + timedelta(hours=hours), tick=True):
        assert approval_rights.find_denial(cora, approval) is None
        assert approval_rights.find_denial(dan, approval) is not None


def test_a_vote_from_before_its_step_does_not_count(three: list[Actor]) -> None:
    approval = asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150))
    seeds.decide(approval, three[1])
    approval.refresh_from_db()
    seeds.verify_approval(approval)
    vote_at(approval, clock.read_time() - timedelta(seconds=60))
    with pytest.raises(ApprovalVoid, match="rule One lets only other people"):
        seeds.verify_approval(approval)


@pytest.mark.parametrize(("level", "counts"), [(2, True), (1, False)])
def test_an_edit_by_a_person_of_a_step_counts_under_the_same_rule(
    three: list[Actor], level: int, counts: bool
) -> None:
    steps = "escalate: [{people: [cora], expires_after: 200}]"
    less = f"rules:\n  - {{name: Less, when: args.security_level < 2, people: [bea], {steps}}}"
    later = clock.read_time() + timedelta(seconds=150)
    approval = asked(LADDER.replace("rules:", less), expires_at=later)
    seeds.decide(approval, three[1], "edit", arguments={**seeds.ARGS, "security_level": level})
    approval.refresh_from_db()
    edit = seeds.heard(approval).edit
    assert edit is not None
    if counts:
        seeds.verify_approval(approval, action_digest=edit.digest)
        return
    with pytest.raises(ApprovalVoid, match="the rule Less demands more than cora"):
        seeds.verify_approval(approval, action_digest=edit.digest)


def vote_at(approval: Approval, at: datetime) -> None:
    """Sign the vote and the decision of cora as of another time, as a web process with an error could."""
    Vote.objects.filter(approval=approval).delete()
    made = votes.make(
        approval, person="cora", stage=0, verdict=Verdict.APPROVE, reason="", at=at, withdrawn=0
    )
    made.save(force_insert=True)
    said = Decision(verdict=Verdict.APPROVE, by="cora")
    approval.decided_at, approval.effective_at = at, None
    digest = votes.compute_digest(made)
    statements.sign(approval, statements.make(approval, said, at, votes=[digest]))
    approval.save()


def escalations(approval: Approval) -> list[dict[str, str]]:
    rows = AuditEntry.objects.filter(run=approval.run_id, act="escalated").order_by("seq")
    return [json.loads(row.detail) for row in rows]


def test_the_sweeper_records_each_step_once_also_those_it_missed(three: list[Actor]) -> None:
    first = asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150))
    both = seeds.pending(expires_at=clock.read_time() + timedelta(seconds=50))
    seeds.pending(expires_at=clock.read_time() + timedelta(seconds=250))  # not yet
    assert [record_escalations(Event()) for _ in range(2)] == [2, 0]
    for approval, people, step in ((first, ["cora"], "escalate"), (both, ["cora", "dan"], "deny")):
        assert [row["to"] for row in escalations(approval)] == people
        approval.refresh_from_db()
        assert (approval.escalated, approval.next_step) == (len(people), step)
        assert approval.open_to == [f"person:{name}" for name in ("bea", *people)]
        audit.verify(approval.run_id)
    cora = find_principal(three[1])
    assert {item.id for item in inbox.read_page(cora, view=View.MINE).items} == {first.id, both.id}
    assert {item.id for item in inbox.read_page(cora, view=View.MINE, q="next:deny").items} == {
        both.id
    }
    # As a sweeper finds them that read the rows before the other wrote
    Approval.objects.update(next_step="escalate", next_at=clock.read_time() - timedelta(seconds=1))
    assert record_escalations(Event()) == 0


def test_a_changed_request_does_not_escalate(three: list[Actor]) -> None:
    approval = asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150))
    assert approval.rule is not None
    Approval.objects.filter(pk=approval.pk).update(rule=approval.rule.replace("cora", "mallory"))
    assert record_escalations(Event()) == 0
    assert escalations(approval) == []


def test_a_request_that_cannot_escalate_stops_no_other(
    three: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    default = seeds.pending()  # by the default policy, which has no steps
    broken, fine = (
        asked(LADDER, expires_at=clock.read_time() + timedelta(seconds=150)) for _ in range(2)
    )
    early = clock.read_time() - timedelta(hours=1)  # no seal covers these columns
    Approval.objects.filter(pk__in=[default.pk, broken.pk]).update(
        next_step="escalate", next_at=early
    )
    real = verification.find_fault

    def fault(approval: Approval) -> str | None:
        if approval.pk == broken.pk:
            raise RuntimeError
        return real(approval)

    monkeypatch.setattr(verification, "find_fault", fault)
    assert (record_escalations(Event()), len(escalations(fine))) == (1, 1)


def test_too_few_people_are_marked_also_when_escalations_fail(
    three: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = seeds.pending()
    for name in ("bea", "cora", "dan"):
        disable(name, actor=None)

    def fail(stop: Event) -> int:
        raise RuntimeError

    monkeypatch.setattr(jobs, "record_escalations", fail)
    with pytest.raises(RuntimeError):
        ApprovalService().look_ahead(Event())
    assert stuck() == {approval.id}


# Too few people


def test_a_request_that_too_few_can_decide_is_marked_until_enough_can(three: list[Actor]) -> None:
    bea, *_ = three
    look = Outlooks()
    fine = asked("rules: [{name: Two, match: {risk: high}, quorum: 2}]")
    approvals = [fine, seeds.pending(risk="low"), seeds.in_doubt()]
    seeds.decide(fine, bea)
    assert look.mark(Event()) == 0
    for name in ("cora", "dan"):
        disable(name, actor=None)
    assert [look.mark(Event()) for _ in range(2)] == [1, 0]  # bea can still decide the others
    assert stuck() == {fine.id}
    disable("bea", actor=None)
    assert look.mark(Event()) == 2  # ada started the runs
    assert stuck() == {approval.id for approval in approvals}
    for name in ("bea", "cora"):
        enable(name, actor=None)
    assert look.mark(Event()) == 3
    disable("cora", actor=None)
    assert look.mark(Event()) == 1
    assert AuditEntry.objects.filter(act="undecidable").count() == 3  # once for each request
    audit.verify(fine.run_id)


def test_two_sweepers_at_once_mark_a_request_once(
    three: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds.pending()
    for actor in three:
        disable(actor.person, actor=None)
    lock = audit.lock_runs

    def late(*runs: UUID) -> None:
        monkeypatch.setattr(audit, "lock_runs", lock)
        assert Outlooks().mark(Event()) == 1  # the other one
        lock(*runs)

    monkeypatch.setattr(audit, "lock_runs", late)
    assert Outlooks().mark(Event()) == 0


def test_people_who_can_decide_in_time_suffice(three: list[Actor], settings: Any) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 100
    hour = clock.read_time() + timedelta(hours=1)
    late = asked(LADDER, expires_at=hour)
    for name in ("bea", "cora"):
        disable(name, actor=None)
    assert Outlooks().mark(Event()) == 0  # dan may decide in the last step
    disable("dan", actor=None)
    seeds.person("anne", Group.ADMINS)
    enable("dan", actor="anne")
    soon = seeds.pending(expires_at=clock.read_time() + timedelta(seconds=50))
    assert Outlooks().mark(Event()) == 1  # the right of dan counts after 100 seconds
    assert stuck() == {soon.id} != {late.id}


def stuck() -> set[UUID]:
    return set(Approval.objects.exclude(undecidable_at=None).values_list("id", flat=True))


def test_people_are_read_in_parts_and_each_of_them_counts(
    three: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a page, which reads the people of the rule alone, and no more than suffice."""
    monkeypatch.setattr(deciders, "READ", 1)
    monkeypatch.setattr(jobs, "FEW", 1)
    named = "rules: [{name: Late, match: {risk: high}, people: [cora, dan], quorum: 2}]"
    ruled, free = asked(named), seeds.pending(risk="low")
    assert Outlooks().mark(Event()) == 0
    assert deciders.read_outlook(ruled).people == ("cora", "dan")
    assert deciders.read_outlook(free) == deciders.Outlook(
        people=("bea",), able=("bea",), suffice=True, is_part=True
    )
    disable("dan", actor=None)
    assert (Outlooks().mark(Event()), stuck()) == (1, {ruled.id})
    assert not deciders.read_outlook(ruled).suffice
    for name in ("bea", "cora"):
        disable(name, actor=None)
    assert (Outlooks().mark(Event()), stuck()) == (1, {ruled.id, free.id})
    assert deciders.read_outlook(free) == deciders.Outlook(people=(), suffice=False)
