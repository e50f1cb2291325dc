"""Several people approve one request: each once, each verified, by the web and again by the worker."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from approvals.decisions.decide import undo
from approvals.errors import AlreadyDecided, AlreadyVoted, NotDecided, NotFound, TamperedWith
from approvals.models import Approval, AuditEntry, Vote
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from approvals.reads import deciders
from approvals.rights import approval_rights
from approvals.rules.policy import Group
from approvals.signed import audit, rows, statements, votes
from runtime.core.values.enums import Decision, Risk, Verdict
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.approvals.policies.office import asked, put_in_force, reviewers
from tests.support import seeds
from tests.support.seeds import decide

pytestmark = pytest.mark.django_db

STAGES = """
rules:
  - name: First bea, then another
    match: {tool: set_privileges}
    stages: [{people: [bea]}, {quorum: 1}]
"""


@pytest.fixture
def four(ada: Actor) -> list[Actor]:
    return reviewers("bea", "cora", "dan", "eva")


def test_the_deciding_vote_commits_the_decision_and_the_worker_verifies_both(
    four: list[Actor],
) -> None:
    bea, cora, *_ = four
    approval = asked()
    assert approval.policy_version == "2"
    first = decide(approval, bea, reason="Seen")
    assert (first.status, first.voted, first.quorum) == ("pending", ("bea",), 2)
    assert not Signal.objects.filter(run=approval.run_id).exists()
    second = decide(approval, cora)
    assert (second.status, second.voted) == ("approved", ("bea", "cora"))
    approval.refresh_from_db()
    seeds.verify_decision(approval)
    seeds.verify_approval(approval)
    acts = AuditEntry.objects.filter(run=approval.run_id).order_by("seq")
    assert [row.act for row in acts] == ["requested", "voted", "voted", "approved"]
    assert audit.verify(approval.run_id) == 4


def test_the_same_person_counts_once_also_with_a_second_token(four: list[Actor]) -> None:
    bea = four[0]
    approval = asked()
    decide(approval, bea)
    for again in (bea, seeds.bearer(bea, "approvals:decide")):
        with pytest.raises(AlreadyVoted):
            decide(approval, again)
    assert Vote.objects.count() == 1


@pytest.mark.parametrize("first", ["anne", "bea"])
def test_one_admin_is_no_quorum_with_a_reviewer_whose_password_they_set(
    four: list[Actor], settings: Any, first: str
) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 0
    seeds.person("anne", Group.ADMINS, Group.REVIEWERS)
    accounts.set_password("bea", "another horse battery", actor="anne")
    approval = asked()
    decide(approval, Actor(person=first))
    with pytest.raises(Forbidden, match="count as one person"):
        decide(approval, Actor(person="bea" if first == "anne" else "anne"))
    decide(approval, four[1])
    seeds.verify_approval(approval)


def test_the_worker_counts_an_admin_and_their_reviewer_as_one(
    four: list[Actor], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 0
    accounts.set_groups("eva", [], actor=None)
    accounts.set_groups("eva", [Group.REVIEWERS], actor="bea")
    approval = asked()
    monkeypatch.setattr(approval_rights, "name_dependent", lambda *_: frozenset())
    decide(approval, four[0])
    decide(approval, four[3])
    monkeypatch.undo()
    with pytest.raises(ApprovalVoid, match="count as one person"):
        seeds.verify_approval(approval)


def leave(name: str) -> None:
    accounts.set_groups(name, set(), actor=None)


def disable(name: str) -> None:
    accounts.disable(name, actor=None)


@pytest.mark.parametrize("lose", [leave, disable])
def test_a_vote_is_validated_again_when_the_last_one_comes(
    four: list[Actor], lose: Callable[[str], None]
) -> None:
    bea, cora, dan, _ = four
    approval = asked()
    decide(approval, bea)
    lose("bea")
    assert decide(approval, cora).voted == ("cora",)
    assert AuditEntry.objects.filter(run=approval.run_id, act=votes.VOID).count() == 1
    assert decide(approval, dan).status == "approved"
    approval.refresh_from_db()
    seeds.verify_approval(approval)
    lose("cora")  # after the decision, before the call starts
    with pytest.raises(ApprovalVoid, match="cora"):
        seeds.verify_approval(approval)


def test_void_votes_are_deleted_also_if_the_second_attempt_is_refused(
    four: list[Actor], monkeypatch: pytest.MonkeyPatch
) -> None:
    bea, cora, *_ = four
    approval = asked(STAGES)
    decide(approval, bea)
    disable("bea")
    read, calls = audit.read_chain_end, list[Any]()

    def overtaken(run: Any) -> audit.Last:
        calls.append(run)
        if len(calls) == 1:  # another act on the run comes before this vote
            ApprovalService().record_audit(run=run, actor=bea, act="pause", detail={})
        return read(run)

    monkeypatch.setattr("approvals.decisions.votes.audit.read_chain_end", overtaken)
    with pytest.raises(Forbidden, match="stage 1 of 2"):
        decide(approval, cora)
    assert not Vote.objects.exists()


def test_only_named_people_decide_and_later_ones_are_told_which_rule(four: list[Actor]) -> None:
    approval = asked(
        "rules: [{name: Only bea, people: [bea], expires_after: 100, escalate: [{people: [dan], expires_after: 100}]}]"
    )
    with pytest.raises(NotFound):
        decide(approval, four[1], "deny", "No")
    with pytest.raises(Forbidden, match="Only bea"):
        decide(approval, four[2], "deny", "No")
    assert decide(approval, four[0]).status == "approved"


def test_a_vote_can_be_withdrawn_and_the_decider_can_undo(four: list[Actor], settings: Any) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    bea, cora, dan, _ = four
    approval = asked(risk="low")
    decide(approval, bea)
    kept = Vote.objects.get()
    undo(approval_id=approval.id, actor=bea)
    with pytest.raises(NotDecided):
        undo(approval_id=approval.id, actor=bea)
    kept.pk = None
    kept.save(force_insert=True)  # by a program that can write to Postgres
    with pytest.raises(TamperedWith, match="vote of bea"):
        decide(approval, cora)
    Vote.objects.all().delete()
    decide(approval, bea)
    assert decide(approval, cora).status == "approved"
    assert undo(approval_id=approval.id, actor=cora).voted == ("bea",)
    with pytest.raises(AlreadyDecided):
        decide(approval, dan), undo(approval_id=approval.id, actor=bea)


@pytest.mark.parametrize(("risk", "seconds"), [("low", 60), ("medium", 60), ("high", 0)])
def test_a_rule_says_how_long_a_decision_can_be_undone(
    four: list[Actor], risk: str, seconds: int
) -> None:
    approval = decide(asked("rules: [{name: Slow, undo: 60}]", risk=risk), four[0], "deny", "No")
    assert approval.decided_at is not None
    at = approval.effective_at or approval.decided_at
    assert at == approval.decided_at + timedelta(seconds=seconds)


def test_an_answer_by_one_person_replaces_no_agreement_of_two(four: list[Actor]) -> None:
    with pytest.raises(InvalidInput, match="2 people must agree"):
        decide(asked(), four[0], "answer", result={})


def test_an_editor_alone_meets_no_quorum_above_one(four: list[Actor]) -> None:
    rule = "rules: [{name: Two, when: args.security_level > 2, quorum: 2}]"
    for level, proposed, counts in ((3, 2, False), (4, 3, False), (2, 3, True)):
        approval = asked(rule, args={**seeds.ARGS, "security_level": proposed})
        changed = {**seeds.ARGS, "security_level": level}
        assert decide(approval, four[0], "edit", arguments=changed).status == "approved"
        approval.refresh_from_db()
        digest = seeds.digest_of(changed)
        if counts:
            seeds.verify_approval(approval, action_digest=digest)
            continue
        with pytest.raises(ApprovalVoid, match="the rule Two demands more than bea"):
            seeds.verify_approval(approval, action_digest=digest)  # then people are asked again


def test_a_call_in_doubt_runs_again_only_by_the_same_quorum(four: list[Actor]) -> None:
    bea, cora, *_ = four
    asked()
    approval = seeds.in_doubt()
    assert seeds.settle(approval, bea, "run_again", "").status == "pending"
    assert seeds.settle(approval, cora, "run_again", "").status == "approved"
    approval.refresh_from_db()
    seeds.verify_approval(approval)


def test_a_vote_that_its_person_did_not_sign_stops_the_decision(four: list[Actor]) -> None:
    bea, cora, *_ = four
    approval = asked()
    decide(approval, bea)
    forged = Vote.objects.get()
    forged.pk, forged.person = None, "dan"
    forged.save(force_insert=True)
    with pytest.raises(TamperedWith, match="vote of dan is not the one that they signed"):
        decide(approval, cora)


# What a program could do that writes to Postgres, or a web process with an error


def forge_alone(approval: Approval) -> None:
    """One person's signed decision, as without a policy."""
    said = Decision(verdict=Verdict.APPROVE, by="cora", reason="")
    statements.sign(approval, statements.make(approval, said, _at(approval)))
    approval.save()


def forge_twice(approval: Approval) -> None:
    """A decision that counts its decider's vote alone."""
    own = Vote.objects.get(approval=approval, person="cora")
    said = Decision(verdict=Verdict.APPROVE, by="cora", reason="")
    made = statements.make(approval, said, _at(approval), votes=[_digest_of(own)])
    statements.sign(approval, made)
    approval.save()


def take_vote(approval: Approval) -> None:
    Vote.objects.get(approval=approval, person="bea").delete()


def move_vote(approval: Approval) -> None:
    """A vote of another person, under her name."""
    Vote.objects.filter(approval=approval, person="bea").update(person="dan")


def vote_as_decision(approval: Approval) -> None:
    own = Vote.objects.get(approval=approval, person="cora")
    approval.statement, approval.signature, approval.key_id = (
        rows.build_signed_text(_counted(own)),
        own.signature,
        own.key_id,
    )
    approval.save()


def lower(approval: Approval) -> None:
    assert approval.rule is not None
    approval.rule = approval.rule.replace('"quorum":2', '"quorum":1')
    approval.save()


FORGERIES = [forge_alone, forge_twice, take_vote, move_vote, vote_as_decision, lower]


@pytest.mark.parametrize("forge", FORGERIES)
def test_the_worker_verifies_every_vote(
    four: list[Actor], forge: Callable[[Approval], None]
) -> None:
    approval = asked()
    decide(approval, four[0])
    decide(approval, four[1])
    approval.refresh_from_db()
    said = seeds.heard(approval)
    forge(approval)
    for verify in (seeds.verify_approval, lambda one: seeds.verify_decision(one, said)):
        with pytest.raises(NotConfirmed):
            verify(approval)


def test_the_outlook_counts_who_is_left(ada: Actor, four: list[Actor]) -> None:
    approval = asked()
    decide(approval, four[0])
    approval.refresh_from_db()
    found = deciders.compute_outlook(approval, deciders.list_deciders())
    assert (found.people, found.suffice) == (("cora", "dan", "eva"), True)
    for name in ("cora", "dan", "eva"):
        disable(name)
    assert not deciders.compute_outlook(
        approval, deciders.list_deciders()
    ).suffice  # ada started the run


def test_without_a_policy_a_request_is_as_before(four: list[Actor]) -> None:
    approval = seeds.pending()
    assert (approval.policy_version, approval.rule, approval.open_to) == ("1", None, None)
    assert decide(approval, four[0]).status == "approved"
    assert not Vote.objects.exists()
    assert "votes" not in json.loads(_text(approval))


def _digest_of(vote: Vote) -> str:
    return votes.compute_digest(_counted(vote))


def _counted(vote: Vote) -> Vote:
    vote.withdrawn = 0
    return vote


def _at(approval: Approval) -> datetime:
    assert approval.decided_at is not None
    return approval.decided_at


def _text(approval: Approval) -> str:
    approval.refresh_from_db()
    assert approval.statement is not None
    return approval.statement


def test_an_edit_counts_only_if_the_rule_of_each_possible_risk_is_met(ada: Actor) -> None:
    """A rule that raised the risk of the proposed call may hide the one that the edited call has."""
    bea, *_ = reviewers("bea", "cora")
    text = """
rules:
  - {name: large, when: args.security_level > 1000, risk: high, quorum: 2}
  - {name: medium, match: {risk: medium}, quorum: 2}
"""
    large, small = ({**seeds.ARGS, "security_level": level} for level in (5000, 900))
    approval = asked(text, risk=Risk.MEDIUM, args=large)
    decide(approval, bea, "edit", arguments=small)
    approval.refresh_from_db()
    with pytest.raises(ApprovalVoid, match="the rule medium demands more"):
        seeds.verify_approval(approval, action_digest=seeds.digest_of(small))


def test_a_call_in_doubt_can_be_given_up_by_people_the_rule_does_not_name(ada: Actor) -> None:
    bea, cora = reviewers("bea", "cora")
    put_in_force("rules: [{name: Only bea, people: [bea]}]")
    approval = seeds.in_doubt()
    accounts.disable(bea.person, actor=None)
    with pytest.raises(Forbidden, match="Other people must approve first"):
        seeds.settle(approval, cora, "run_again", "x")
    assert seeds.settle(approval, cora, "give_up", "x").status == "denied"


FINANCE = "rules: [{name: Finance, match: {tool: set_privileges}, groups: [finance]}]"


def test_a_group_counts_where_it_is_named_and_only_with_the_right_to_decide(
    four: list[Actor], settings: Any
) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 3600
    bea, cora, dan, _ = four
    seeds.person("admin", Group.ADMINS)
    accounts.create_group("finance", actor=None)
    accounts.set_groups("bea", {Group.REVIEWERS, "finance"}, actor=None)
    accounts.create_person(
        username="cyril", password=seeds.PASSWORD, groups={"finance"}, actor=None
    )
    accounts.set_groups("dan", {Group.REVIEWERS, "finance"}, actor="admin")  # does not count yet
    approval = asked(FINANCE)
    for other in (cora, dan, Actor(person="cyril")):
        with pytest.raises((Forbidden, NotFound)):
            decide(approval, other)
    accounts.confirm("dan", "finance", seq=1, actor=None)
    assert {one.person for one in deciders.list_deciders() if "finance" in one.groups} == {
        "bea",
        "dan",
    }
    assert decide(approval, bea).status == "approved"
    approval.refresh_from_db()
    seeds.verify_approval(approval)
    accounts.set_groups("bea", {Group.REVIEWERS}, actor=None)
    with pytest.raises(ApprovalVoid, match="bea"):
        seeds.verify_approval(approval)


def test_a_membership_given_by_the_requester_does_not_count_in_their_runs(
    four: list[Actor], settings: Any
) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 0
    seeds.person("root", Group.ADMINS)
    accounts.create_group("finance", actor=None)
    accounts.set_groups("bea", {Group.REVIEWERS, "finance"}, actor="root")
    with pytest.raises(Forbidden, match="got the right to decide from root"):
        decide(asked(FINANCE, requester="root"), four[0])
    assert decide(seeds.pending(), four[0]).status == "approved"
