"""A reviewer writes to the run they decide on: the requests that they may still decide, and those by no door."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.decisions import batch, teamwork
from approvals.errors import AlreadyDecided, TamperedWith
from approvals.models import Approval, AuditEntry
from approvals.people import tokens
from approvals.people.accounts import set_groups
from approvals.rights.principals import ALL_SCOPES
from approvals.rules.policy import Group
from runtime.control.forks import fork
from runtime.control.interventions import send_message
from runtime.control.verification import verify
from runtime.core.values.enums import Verdict
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Run
from runtime.ports.access import Actor
from tests.approvals.policies.office import put_in_force, reviewers
from tests.support import seeds
from tests.support.engine import events
from tests.support.fake_ports import ask, say, turns
from tests.support.office import NEWCOMER, Target, approve, refused
from tests.support.pages import has, log_in, send, shows, text_of
from tests.support.seeds import decide

ADA, BEA, CORA, ADMIN = (Actor(person=name) for name in ("ada", "bea", "cora", "admin"))
RULE = "rules: [{name: Talk, match: {tool: set_privileges}, reviewer_may_write: true}]"
TEXT = "use <b>level</b> 5"
LEVEL = ("set_privileges", {"username": "newhire", "security_level": 5})


def pending(run: UUID, **those: Any) -> Approval:
    return Approval.objects.get(run=run, status="pending", **those)


def write(run: UUID, actor: Actor = BEA) -> None:
    teamwork.send_message(approval_id=pending(run).id, text=TEXT, actor=actor)


@pytest.fixture
def run(target: Target) -> UUID:
    """Ada's run, whose first call waits under the rule. Its agent proposes another call afterwards."""
    put_in_force(RULE)
    reviewers("cora")
    target.effects.agents["hr_onboarding"] = turns(
        ask(("account_agent", NEWCOMER)), ask(LEVEL), say("Done.")
    )
    return target.start()


@pytest.fixture
def later(target: Target, run: UUID) -> Approval:
    """The request that opened after Bea's message."""
    write(run)
    approve(run, BEA)
    target.advance(run)
    return pending(run)


def test_a_writer_decides_what_was_open_and_the_agent_gets_the_message_after_that(
    target: Target, run: UUID
) -> None:
    write(run)
    assert verify(run).is_consistent
    cora = log_in(User.objects.get(username="cora"))
    shows(cora, f"/a/{pending(run).id}/", hides=["<dt>Cannot decide"])
    page = shows(
        cora, f"/runs/{run}/", "<dt>Cannot decide new requests</dt>", hides=["decide here"]
    )
    has(page, "<bdi>bea</bdi>")
    target.advance(run)  # a worker receives the message
    [got] = [one for one in events(run) if one["type"] == "MessageReceived"]
    assert (got["by"], got["text"], got["reviewer"]) == ("bea", TEXT, True)
    assert not any(TEXT in str(one.messages) for one in target.effects.models)
    approve(run, BEA)
    target.advance(run)
    assert target.started(run) == 1
    said = {"role": "message", "by": "bea", "content": TEXT}
    assert target.effects.models[-1].messages[-1] == said
    assert AuditEntry.objects.filter(run=run, act="wrote", actor="bea").count() == 1
    assert verify(run).is_consistent


def by_token(approval: Approval) -> None:
    decide(approval, seeds.bearer(BEA, "approvals:decide"))


def by_batch(approval: Approval) -> None:
    items = {approval.id: approval.approval_digest}
    [one] = batch.decide_each(items=items, verdict="approve", reason="", count=None, actor=BEA)
    assert one.problem is not None
    raise one.problem


# The other doors of `decide` are those of any person of the origin.
DOORS: dict[str, Callable[[Approval], object]] = {
    "approve": lambda approval: decide(approval, BEA),
    "deny": lambda approval: decide(approval, BEA, Verdict.DENY, "no"),
    "change": lambda approval: decide(approval, BEA, "edit", arguments={**LEVEL[1]}),
    "answer": lambda approval: decide(approval, BEA, "answer", result=1),
    "request changes": lambda approval: decide(approval, BEA, "request_changes", "less"),
    "a second token": by_token,
    "together with others": by_batch,
    "write again": lambda approval: teamwork.send_message(
        approval_id=approval.id, text="more", actor=BEA
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_writer_decides_nothing_that_opens_afterwards(later: Approval, door: str) -> None:
    with pytest.raises(Forbidden) as caught:
        DOORS[door](later)
    assert caught.value.code == "origin"
    later.refresh_from_db()
    assert later.status == "pending"


def test_rows_without_the_writer_hide_no_message(target: Target, run: UUID) -> None:
    """The run's row loses Bea before the later request opens. The journal names her, so its seal does."""
    write(run)
    target.advance(run)
    Run.objects.filter(id=run).update(origin=["ada"])
    approve(run, BEA)
    target.advance(run)
    later = pending(run)
    assert refused(run, BEA) == "origin"
    Approval.objects.filter(pk=later.pk).update(excluded=["ada"])
    with pytest.raises(TamperedWith, match="could decide, although"):
        decide(later, CORA)


def test_another_person_decides_what_opens_afterwards(target: Target, later: Approval) -> None:
    decide(later, CORA)
    assert target.advance(later.run_id).status == "completed"
    assert target.started(later.run_id) == 2


SIBLING = """
rules:
  - {name: Talk, when: args.username == 'newhire', reviewer_may_write: true}
  - {name: Silent, match: {tool: set_privileges}, quorum: 1}
"""


def test_a_writer_does_not_decide_an_open_request_whose_rule_is_silent(target: Target) -> None:
    put_in_force(SIBLING)
    target.ask_twice()
    run = target.start()
    talk, silent = Approval.objects.filter(run=run).order_by("created_at")
    with pytest.raises(Forbidden, match="does not let"):
        teamwork.send_message(approval_id=silent.id, text=TEXT, actor=BEA)
    decide(silent, BEA)  # before she writes; no worker has received the decision
    teamwork.send_message(approval_id=talk.id, text=TEXT, actor=BEA)
    target.advance(run)
    assert target.started(run) == 0
    again = pending(run, rule__contains="Silent")
    assert again.revises is None
    with pytest.raises(Forbidden) as caught:
        decide(again, BEA)
    assert caught.value.code == "origin"
    decide(talk, BEA)
    target.advance(run)
    assert target.started(run) == 1


def test_an_approval_by_a_writer_where_the_rule_is_silent_does_not_count_by_the_journal(
    target: Target,
) -> None:
    put_in_force(SIBLING)
    target.ask_twice()
    run = target.start()
    talk, silent = Approval.objects.filter(run=run).order_by("created_at")
    teamwork.send_message(approval_id=talk.id, text=TEXT, actor=BEA)
    target.advance(run)
    Approval.objects.filter(pk=silent.pk).update(excluded=["ada"])  # as it was sealed
    decide(silent, BEA)
    target.advance(run)
    assert target.started(run) == 0


def test_who_also_steers_as_an_admin_decides_nothing(target: Target, run: UUID) -> None:
    write(run)
    set_groups("bea", (Group.REVIEWERS, Group.ADMINS), actor=None)
    send_message(run=run, text="Pay.", actor=BEA)
    assert refused(run, BEA) == "origin"
    target.advance(run)
    Approval.objects.filter(run=run).update(excluded=["ada"])
    approve(run, BEA)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0


def test_an_approval_before_the_message_counts(target: Target) -> None:
    put_in_force(f"{RULE[:-2]}, quorum: 2}}]")
    reviewers("cora")
    run = target.start()
    approve(run, BEA)
    write(run)
    target.advance(run)
    approve(run, CORA)
    target.advance(run)
    assert target.started(run) == 1


def test_a_fork_comes_from_the_writer_too(target: Target, run: UUID) -> None:
    write(run)
    target.advance(run)
    new = fork(run=run, position=Run.objects.get(id=run).position, actor=ADMIN)
    target.advance(new)
    assert refused(new, BEA) == "origin"
    assert verify(new).is_consistent


def test_who_may_not_decide_or_comes_late_writes_nothing(target: Target, run: UUID) -> None:
    approval = pending(run)
    refusals: list[tuple[Actor, object, type[Exception], str]] = [
        (ADA, TEXT, Forbidden, "started this run"),
        (seeds.bearer(BEA, "runs:control"), TEXT, Forbidden, "scope"),
        (BEA, " ", InvalidInput, "is required"),
        (BEA, "x" * 16_001, InvalidInput, "at most 16000"),
    ]
    for actor, text, error, why in refusals:
        with pytest.raises(error, match=why):
            teamwork.send_message(approval_id=approval.id, text=text, actor=actor)
    with pytest.raises(Forbidden, match="does not let"):
        teamwork.send_message(approval_id=seeds.in_doubt().id, text=TEXT, actor=BEA)
    approve(run, BEA)
    with pytest.raises(AlreadyDecided):
        teamwork.send_message(approval_id=approval.id, text=TEXT, actor=BEA)
    assert not AuditEntry.objects.filter(run=run, act="wrote").exists()


def test_the_page_and_the_api_send_it(run: UUID, target: Target) -> None:
    bea, ada = (log_in(User.objects.get(username=name)) for name in ("bea", "ada"))
    approval = pending(run)
    shows(bea, approval, "Write to the run", "Another person must decide each request that opens")
    shows(ada, approval, hides=["Write to the run"])
    wrong = text_of(send(bea, approval, "write", text="x" * 16_001), 422)
    has(wrong, "Not sent: the text must have at most", "x" * 100)
    assert send(bea, approval, "write", text=TEXT).status_code == 302
    _, secret = tokens.create(User.objects.get(username="cora"), ALL_SCOPES)
    answer = Client(headers={"Authorization": f"Bearer {secret}"}).post(
        f"/api/v1/approvals/{approval.id}/messages", {"text": "B"}, content_type="application/json"
    )
    assert (answer.status_code, answer.json()) == (202, {"run": str(run), "by": "cora"})
    target.advance(run)
    shows(ada, f"/runs/{run}/?tab=transcript", "message from the reviewer", hides=[TEXT])
    page = shows(bea, approval, "message from the reviewer", "Write to the run")
    assert page.count("message from the reviewer") == 2
    approve(run, BEA)
    shows(bea, approval, hides=["Write to the run"])
