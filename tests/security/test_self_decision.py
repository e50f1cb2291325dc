"""No person decides in a run of their own: one table of every path, and one of the ways around a person."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings

from approvals import clock
from approvals.errors import PolicyRefused
from approvals.governance import policies
from approvals.models import Approval
from approvals.people import absences
from approvals.rules.policy import Group
from runtime.control.forks import fork
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import GateKind
from runtime.models import Run
from runtime.ports.access import Actor
from tests.approvals.allowances.office import in_force as allowed
from tests.approvals.allowances.office import proposed
from tests.approvals.policies.office import put_in_force, reviewers
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.office import BEA, SCHEMA, Target, reseal
from tests.support.pages import log_in, send
from tests.support.released import account_agent, released

ADA, ANNE = Actor(person="ada"), Actor(person="anne")
BOTH = "rules: [{name: Both, people: [ada, bea]}]"


class Own:
    """Ada, who reviews too, and runs of hers: one at each kind of gate. Anne reviews and is an admin."""

    def __init__(self, target: Target) -> None:
        self.target = target
        reviewers("cora", "dan")
        seeds.person("anne", Group.ADMINS, Group.REVIEWERS)
        self.halt = target.held()
        self.short = target.short(BudgetLimits(turns=1))
        self.doubt = target.in_doubt_request(target.in_doubt())
        reseal([self.doubt], not_before=None)
        self.approval = target.request(target.start())
        self.other = target.request(target.start(requester="dan"))
        self.fork = target.request(self.forked(self.approval.run_id))
        before = released(account_agent(instructions="Be kind."))
        after = released(account_agent(instructions="Be brief.", subagents=[]))
        self.pair = {"agent": "account_agent", "before": before, "after": after}
        args = {**self.pair, "changes": []}
        self.version = seeds.pending(requester="anne", kind=GateKind.VERSION, call="", args=args)
        self.question = target.question("Which level?", SCHEMA)

    def forked(self, run: UUID) -> UUID:
        """Fork a run as Anne, and take it as far as it goes."""
        made = fork(run=run, position=Run.objects.get(id=run).position, actor=ANNE)
        self.target.advance(made)
        return made

    def start(self, requester: str) -> UUID:
        """A run whose call waits, or is passed."""
        args = {"username": "newhire", "security_level": 3}
        return self.target.start(requester=requester, args=args)

    def page(
        self, way: str, approval: Approval | None = None, /, *, by: str = "ada", **form: str
    ) -> int:
        """Send the form of a page of the request."""
        client = log_in(User.objects.get(username=by))
        given = {"reason": "Mine.", **form}
        return int(send(client, approval or self.approval, way, **given).status_code)

    def post(self, path: str, form: Mapping[str, Any], by: str = "ada") -> int:
        return int(log_in(User.objects.get(username=by)).post(path, form).status_code)

    def api(self, path: str, body: Mapping[str, Any], by: str = "ada") -> int:
        return int(Caller(User.objects.get(username=by)).post(path, body).status_code)

    def decision(self, approval: Approval | None = None, by: str = "ada", **body: Any) -> int:
        row = approval or self.approval
        given = {"verdict": "approve", "digest": row.approval_digest, "reason": "Mine.", **body}
        return self.api(f"/approvals/{row.id}/decision", given, by)

    def item(self) -> dict[str, str]:
        return {"item": f"{self.approval.id}:{self.approval.approval_digest}", "verdict": "approve"}


def undo(own: Own) -> tuple[int, ...]:
    """By the page and the API: the decision of another."""
    with override_settings(SIGNOFF_UNDO_SECONDS=60):
        seeds.decide(own.approval, BEA)
    one = own.approval.id
    batch = own.post("/batch/undo/", {"item": str(one)})
    return own.page("undo"), own.api(f"/approvals/{one}/undo", {}), batch


def settle(own: Own) -> tuple[int, ...]:
    where = f"/runs/{own.doubt.run_id}/gates/{own.doubt.gate}/settle"
    ways = ("happened", "run-again", "give-up")
    by_page = [own.page(f"settle/{way}", own.doubt, result="{}") for way in ways]
    return *by_page, own.api(where, {"outcome": "give_up", "reason": "Mine."})


def delegate(own: Own) -> tuple[int, ...]:
    """Ada acts in Bea's place, and Cora in Ada's, in Ada's run."""
    now = clock.read_time()
    when = {"starts": now, "ends": now + timedelta(days=1)}
    put_in_force("rules: [{name: Ada, people: [ada]}]")
    theirs = seeds.pending()
    absences.announce(deputy="cora", actor=ADA, **when)
    found = own.page("approve", theirs, by="cora")
    absences.end_absence("ada", actor=ADA)
    absences.announce(deputy="ada", actor=BEA, **when)
    return found, own.page("approve"), own.decision()


def tokens(own: Own) -> tuple[int, ...]:
    """Two tokens of one person: each call makes a new one."""
    return own.decision(), own.decision(), own.decision(verdict="deny")


def allowance(own: Own) -> tuple[int, ...]:
    """Ada proposes from her own run, and confirms what Bea proposed from it."""
    form = {"rule.0": "any", "rule.1": "any", "count": "5", "days": "3"}
    limits = {name: {"rule": "any"} for name in ("username", "security_level")}
    place = f"/allowances/{proposed(own.approval)}"
    body = {"limits": limits, "count": 5, "days": 3}
    return (
        own.page("allow", **form),
        own.api(f"/approvals/{own.approval.id}/allowance", body),
        own.post(f"{place}/confirm/", {}),
        own.api(f"{place}/confirm", {}),
    )


def policy(own: Own) -> tuple[int, ...]:
    """An admin confirms her own change; and a policy in force that names Ada does not let her decide her run."""
    number = policies.propose(BOTH, actor="anne")
    confirmed = own.post(f"/policies/{number}/confirm/", {}, by="anne")
    with pytest.raises(PolicyRefused):
        policies.confirm(number, actor="anne")
    put_in_force(BOTH)
    approval = seeds.pending()
    return confirmed, own.page("approve", approval), own.decision(approval)


def version(own: Own) -> tuple[int, ...]:
    """At the gate; one decision for all runs of a change leaves the admin's own waiting."""
    form = {**own.pair, "count": "1", "reason": "Mine."}
    own.post("/version-changes/continue/", form, by="anne")
    own.api("/version-changes", {**form, "count": 1}, by="anne")
    return (own.page("continue", own.version, by="anne"),)


# Each returns the statuses of its answers, all of which refuse.
PATHS: dict[str, Callable[[Own], tuple[int, ...]]] = {
    "page": lambda own: (own.page("approve"), own.page("deny"), own.page("changes")),
    "API": lambda own: (own.decision(), own.decision(verdict="request_changes")),
    "batch": lambda own: (own.post("/batch/", own.item()),),
    "undo": undo,
    "edit": lambda own: (
        own.page("edit", **{"in.security_level": "1"}),
        own.page("edit/approve", arguments='{"username": "x", "security_level": 1}'),
        own.decision(verdict="edit", arguments={"username": "x", "security_level": 1}),
    ),
    "answer": lambda own: (
        own.page("answer", result="1"),
        own.decision(verdict="answer", result=1),
    ),
    "answer to a question": lambda own: (
        own.page("answer", own.question, **{"in.username": "x", "in.security_level": "1"}),
        own.decision(own.question, verdict="answer", result={"username": "x", "security_level": 1}),
    ),
    "inquiry to the agent": lambda own: (
        own.page("ask", question="Why?"),
        own.api(f"/approvals/{own.approval.id}/questions", {"question": "Why?"}),
    ),
    "message of a reviewer": lambda own: (
        own.page("write", text="Approve it."),
        own.api(f"/approvals/{own.approval.id}/messages", {"text": "Approve it."}),
    ),
    "settle": settle,
    "frame gate": lambda own: (
        own.page("continue", own.halt),
        own.page("stop", own.halt),
        own.page("continue", own.short, **{"grant.turns": "5"}),
        own.decision(own.short, verdict="continue", grant={"turns": 5}),
    ),
    "version decision": version,
    "claim": lambda own: (own.page("claim"), own.api(f"/approvals/{own.approval.id}/claim", {})),
    "hand-over": lambda own: (
        own.page("hand-over", to="bea"),
        own.page("hand-over", by="bea", to="ada"),
        own.api(f"/approvals/{own.approval.id}/handover", {"to": "ada"}, by="bea"),
    ),
    "delegate": delegate,
    "second token": tokens,
    "fork": lambda own: (
        own.page("approve", own.fork),
        own.decision(own.fork),
        own.page("approve", own.fork, by="anne"),
    ),
    "allowance": allowance,
    "policy change": policy,
}


def test_no_person_decides_in_their_own_run(target: Target, subtests: pytest.Subtests) -> None:
    own = Own(target)
    started = len(target.effects.calls)
    for path, act in PATHS.items():
        with subtests.test(path), transaction.atomic():
            found = act(own)
            decided = Approval.objects.filter(decided_by__in=("ada", "anne")).exists()
            transaction.set_rollback(True)
            assert {*found} <= {403, 409, 422}, found
            assert not decided
        policies.forget()
    for approval in (own.halt, own.short, own.doubt, own.approval, own.fork, own.question):
        target.advance(approval.run_id)
    assert len(target.effects.calls) == started


# Ways around a person: each returns a run whose call must wait for people


def editor(own: Own) -> UUID:
    """Where two must agree, one who edits is one."""
    put_in_force("rules: [{name: Two, quorum: 2}]")
    run = own.start("dan")
    edited = {"username": "x", "security_level": 1}
    seeds.decide(own.target.request(run), BEA, "edit", arguments=edited)
    own.target.advance(run)
    return run


def makers_run(own: Own) -> UUID:
    allowed(own.other)
    assert own.target.started(own.start("ada")) == 1
    return own.start("cora")


def fork_of_a_makers_run(own: Own) -> UUID:
    run = own.start("bea")
    allowed(own.other)
    return own.forked(run)


@pytest.mark.parametrize("way", [editor, makers_run, fork_of_a_makers_run])
def test_a_call_of_their_own_waits_for_others(target: Target, way: Callable[[Own], UUID]) -> None:
    run = way(Own(target))
    assert target.started(run) == 0
    assert Approval.objects.filter(run=run, status="pending").count() == 1
