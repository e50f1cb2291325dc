"""Votes, stages, deputies, escalation, expiry and allowances in any order, beside a model of a few lines."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from approvals import clock
from approvals.decisions.decide import undo
from approvals.errors import ApprovalError
from approvals.governance import allowance_changes, allowance_uses
from approvals.governance.allowances import read_allowance
from approvals.models import Approval
from approvals.people import absences
from approvals.port.adapter import ApprovalService
from runtime.core.values.enums import Risk
from runtime.errors import Forbidden, InvalidInput, RunEnded
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid
from tests.approvals.allowances.office import LIMITS, proposed
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds

pytestmark = pytest.mark.slow

PEOPLE = ("bea", "cora", "dan", "eva")  # all of them review
MOST = 3  # the highest level that an allowance covers
STEP = 100  # seconds that each step of an escalation lasts
who = st.sampled_from(PEOPLE)
ACTS = ("vote", "vote", "vote", "deny", "withdraw", "steer", "back", "expire")
OPS = st.lists(
    st.tuples(st.sampled_from(ACTS), who, st.none())
    | st.tuples(st.sampled_from(("announce", "announce", "allow", "call")), who, who),
    min_size=3,
    max_size=14,
)

Op = tuple[str, str, str | None]
Stages = Sequence[tuple[int, Sequence[str]]]  # how many of whom; of all reviewers if none is named
# The stages of a rule, and the person whom each step of its escalation adds
RULES: tuple[tuple[Stages, Sequence[str]], ...] = (
    ([(2, ())], ()),
    ([(1, ["bea"]), (1, ())], ()),
    ([(2, ["bea", "eva"])], ()),
    ([(1, ["bea", "cora"])], ()),
    ([(1, ["bea"])], ("cora", "dan")),
    ([(2, ["bea", "cora", "dan"]), (1, ["eva", "bea"])], ("eva",)),
)


def text_of(stages: Stages, steps: Sequence[str]) -> str:
    rule = {
        "name": "A",
        "stages": [{"quorum": n, **({"people": who} if who else {})} for n, who in stages],
        **({"escalate": [{"people": [p], "expires_after": STEP} for p in steps]} if steps else {}),
    }
    return json.dumps({"rules": [rule]})


@dataclass
class Allowance:
    """An allowance by two people, as they understand it."""

    id: UUID
    by: list[str]
    count: int = 1

    def passes(self, requester: str, level: int) -> bool:
        return self.count > 0 and requester not in self.by and level <= MOST


@dataclass
class Model:
    """A request as its reviewers understand it: who may still say yes, for themselves or in another's place."""

    stages: list[tuple[int, set[str]]]  # with the people of the steps that have begun
    base: list[tuple[int, set[str]]]  # without them
    origin: set[str]
    due: bool
    away: dict[str, str] = field(default_factory=dict)
    votes: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    status: str = "pending"
    last: tuple[str, str] | None = None  # the act that closed it, which may be sent again

    def stands_for(self, deputy: str) -> list[str]:
        absent = sorted(one for one, by in self.away.items() if by == deputy)
        return [one for one in absent if self.is_named(one) and one not in self.origin]

    def is_named(self, person: str) -> bool:
        return any(person in people for _, people in self.stages)

    def may_decide(self, person: str) -> bool:
        named = self.is_named(person) or bool(self.stands_for(person))
        return named and person not in self.origin

    def stage(self) -> int | None:
        counts = Counter(stage for stage, _ in self.votes.values())
        return next((n for n, (of, _) in enumerate(self.stages) if counts[n] < of), None)

    def vote(self, person: str) -> bool:
        if self.last == (person, "vote"):
            return True
        if not self._opens(person):
            return False
        self.votes = {p: at for p, at in self.votes.items() if not {p, at[1]} & self.origin}
        stage = self.stage()
        assert stage is not None
        people, taken = self.stages[stage][1], {*self.votes, *(a for _, a in self.votes.values())}
        places = [None] if person in people else self.stands_for(person)
        free = [one for one in places if one is None or (one in people and one not in taken)]
        if person in taken or not free:
            return False
        self.votes[person] = stage, free[0]
        if self.stage() is None:
            self.status, self.last = "approved", (person, "vote")
        return True

    def deny(self, person: str) -> bool:
        if self._opens(person):
            self.status, self.last = "denied", (person, "deny")
        return self.last == (person, "deny")

    def _opens(self, person: str) -> bool:
        """Tell whether the person may decide, before the deadline."""
        if self.status != "pending" or not self.may_decide(person):
            return False
        if self.due:
            self.status = "expired"
        return not self.due

    def withdraw(self, person: str) -> bool:
        if self.status != "pending" or person not in self.votes:
            return False
        if self.votes[person][1] is None and not self.may_decide(person):
            return False
        del self.votes[person]
        return True

    def announce(self, person: str, deputy: str) -> bool:
        if deputy == person or deputy in self.away:
            return False
        self.away[person] = deputy
        return True

    def expire(self, person: str) -> bool:
        if self.due and self.status == "pending":
            self.status = "expired"
        return True

    def steer(self, person: str) -> bool:
        self.origin.add(person)
        return True

    def back(self, person: str) -> bool:
        self.away.pop(person, None)
        return True

    def allows(self, first: str, second: str) -> bool:
        """Tell whether these two make an allowance of a call under this rule; steps of an escalation add none."""
        (quorum, people), *more = self.base
        return quorum == 1 and not more and first != second and {first, second} <= people


def done(approval: Approval, op: str, person: str, other: str | None) -> bool:
    """Carry out an act, and return whether it was allowed."""
    actor, now, day = Actor(person=person), clock.read_time(), timedelta(days=1)
    try:
        match op:
            case "vote":
                seeds.decide(approval, actor)
            case "deny":
                seeds.decide(approval, actor, "deny", "No.")
            case "withdraw":
                undo(approval_id=approval.id, actor=actor)
            case "steer":
                ApprovalService().join(run=approval.run_id, person=person)
            case "expire":
                ApprovalService().expire(approval.gate)
            case "announce":
                absences.announce(deputy=other, starts=now - day, ends=now + day, actor=actor)
            case "back":
                absences.end_absence(person, actor=actor)
    except (ApprovalError, Forbidden, InvalidInput, RunEnded):
        return False
    return True


def play(rule: int, ahead: int, ops: Sequence[Op]) -> Counter[str]:
    """Ask under a rule, carry out the acts, and count the outcomes."""
    stages, steps = RULES[rule]
    due = clock.read_time() + timedelta(seconds=STEP * ahead + STEP / 2)
    approval = asked(text_of(stages, steps), expires_at=due)
    begun = [*steps][: max(0, len(steps) - max(0, ahead))]
    model = Model(
        stages=[(n, {*who, *begun} if who else {*PEOPLE}) for n, who in stages],
        base=[(n, {*who} if who else {*PEOPLE}) for n, who in stages],
        origin={"ada"},
        due=ahead < 0,
    )
    passing, seen = list[Allowance](), Counter[str]()
    for op, person, other in ops:
        if op == "allow" and other is not None:
            passing += allowed(model, person, other)
        elif op == "call" and other is not None:
            seen["passed"] += call(passing, person, 2 + PEOPLE.index(other) % 3)
        else:
            given = () if other is None else (other,)
            assert done(approval, op, person, other) is getattr(model, op)(person, *given), op
        check(approval, model)
    seen[model.status] += 1
    seen["by a deputy"] += any(absent for _, absent in model.votes.values())
    return seen


def allowed(model: Model, first: str, second: str) -> list[Allowance]:
    """Have two people make an allowance of one call, and return it unless it was refused."""
    source = seeds.pending(risk=Risk.MEDIUM)
    try:
        made = proposed(source, by=Actor(person=first), limits=LIMITS, count=1)
        allowance_changes.confirm(made, actor=Actor(person=second))
    except (ApprovalError, Forbidden):
        assert not model.allows(first, second)
        return []
    assert model.allows(first, second)
    return [Allowance(id=made, by=[first, second])]


def call(models: Sequence[Allowance], requester: str, level: int) -> bool:
    run = seeds.run(requester)
    args = {"username": "new.hire", "security_level": level}
    shown = seeds.snapshot(
        run, requester=requester, risk=Risk.MEDIUM, args=args, call=f"c{uuid4().hex}"
    )
    allowance_uses.forget()
    allowed = allowance_uses.allow(shown, {})
    able = [model for model in models if model.passes(requester, level)]
    assert (allowed is not None) is bool(able)
    if allowed is None:
        return False
    (approval,) = seeds.opened(replace(shown, allowed=allowed))
    model = next(model for model in able if model.id == allowed.use.id)
    model.count -= 1
    assert allowance_uses.verify(approval, ()).by == tuple(model.by)
    found = read_allowance(model.id)
    assert found is not None
    assert found.left == model.count
    return True


def check(approval: Approval, model: Model) -> None:
    approval.refresh_from_db()
    assert approval.status == model.status
    assert {*approval.voted} == {*model.votes}
    assert {*approval.voted_for} == {absent for _, absent in model.votes.values() if absent}
    if model.status != "approved":
        return
    seeds.verify_decision(approval)
    if model.origin & {*approval.voted, *approval.voted_for}:
        with pytest.raises(ApprovalVoid):
            seeds.verify_approval(approval)
    else:
        seeds.verify_approval(approval)


# Each outcome once, and what a deputy may do, however few histories follow
SOME = (
    (2, 0, "announce bea cora, vote cora, vote eva"),
    (4, 1, "vote dan, vote cora, steer cora"),
    (4, -1, "vote dan, expire bea"),
    (3, 0, "allow bea cora, call eva bea, call eva bea"),
    (0, 0, "vote bea, deny cora"),
    (1, 0, "vote bea, steer bea, vote dan"),
    (1, 0, "vote cora, vote bea, vote bea, vote cora"),
    (1, 0, "vote cora, vote bea, vote bea, deny bea"),
    (0, 0, "vote bea, vote cora, vote cora, vote bea, deny cora"),
    (3, 0, "announce bea cora, vote cora"),
    (2, 0, "announce bea cora, vote bea, vote cora, withdraw bea, vote cora, back bea, vote eva"),
    (2, 0, "announce bea cora, announce eva cora, vote bea, vote cora"),
)


def ops_of(text: str) -> list[Op]:
    words = [one.split() for one in text.split(", ")]
    return [(op, person, other[0] if other else None) for op, person, *other in words]


@pytest.mark.django_db
def test_every_history_ends_as_in_the_model() -> None:
    """One test of many histories, because people are made once."""
    reviewers(*PEOPLE)
    seeds.person("ada")
    seen = Counter[str]()

    def history(rule: int, ahead: int, ops: Sequence[Op]) -> None:
        with transaction.atomic():
            seen.update(play(rule, ahead, ops))
            transaction.set_rollback(True)

    for rule, ahead, text in SOME:
        history(rule, ahead, ops_of(text))
    settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )(given(st.integers(0, len(RULES) - 1), st.integers(-1, 2), OPS)(history))()
    wanted = {"approved", "denied", "expired", "pending", "passed", "by a deputy"}
    assert wanted <= {name for name, count in seen.items() if count}
