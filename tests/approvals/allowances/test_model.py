"""Acts and calls in any order, beside a model of a few lines: the same calls pass, and no other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from approvals.errors import AllowanceRefused
from approvals.governance import allowance_changes, allowance_uses, allowances
from runtime.core.values.enums import Risk
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from tests.approvals.allowances.office import ANY, proposed, reviewers
from tests.support import seeds

PEOPLE = ("bea", "cora", "dan")  # all of them review, and start runs
MOST = 3  # the highest level that an allowance covers


@dataclass
class Model:
    """An allowance as two people understand it."""

    id: UUID
    count: int
    by: list[str]
    revoked: bool = False

    def passes(self, requester: str, level: int) -> bool:
        return (
            len(self.by) == 2
            and not self.revoked
            and self.count > 0
            and self.fits(requester, level)
        )

    def fits(self, requester: str, level: int) -> bool:
        return requester not in self.by and level <= MOST


who = st.sampled_from(PEOPLE)
OPS = st.lists(
    st.tuples(st.just("propose"), who, st.integers(1, 2))
    | st.tuples(st.sampled_from(("confirm", "revoke")), who, st.integers(0, 2))
    | st.tuples(st.just("call"), who, st.integers(2, MOST + 1)),
    min_size=2,
    max_size=14,
)
SOME = [("propose", "bea", 2), ("confirm", "cora", 0), ("call", "dan", 3)]


@pytest.mark.django_db
def test_calls_pass_as_in_the_model() -> None:
    """One test of many histories, because people are made once."""
    reviewers(*PEOPLE, "eve")
    seen = list[bool]()

    @settings(
        max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(OPS.map(lambda ops: [*SOME, *ops]))
    def histories(ops: Sequence[tuple[str, str, int]]) -> None:
        with transaction.atomic():
            seen.extend(play(ops))
            transaction.set_rollback(True)

    histories()
    assert {True, False} <= set(seen)


def play(ops: Sequence[tuple[str, str, int]]) -> list[bool]:
    """Carry out these acts, and return whether each call was passed."""
    source = seeds.pending(risk=Risk.MEDIUM, requester="eve")
    limits = {"username": ANY, "security_level": {"rule": "at_most", "values": [MOST]}}
    models, passed = list[Model](), list[bool]()
    for op, person, number in ops:
        actor = Actor(person=person)
        if op == "propose":
            allowance = proposed(source, by=actor, limits=limits, count=number)
            models.append(Model(id=allowance, count=number, by=[person]))
        elif op == "call":
            passed.append(call(models, person, number))
        elif number < len(models):
            act(op, models[number], actor)
    return passed


def act(op: str, model: Model, actor: Actor) -> None:
    legal = not model.revoked and (
        op == "revoke" or (len(model.by) == 1 and actor.person not in model.by)
    )
    try:
        {"confirm": allowance_changes.confirm, "revoke": allowance_changes.revoke}[op](
            model.id, actor=actor
        )
    except (AllowanceRefused, Forbidden):
        assert not legal
        return
    assert legal
    if op == "revoke":
        model.revoked = True
    else:
        model.by.append(actor.person)


def call(models: Sequence[Model], requester: str, level: int) -> bool:
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
    found = allowances.read_allowance(model.id)
    assert found is not None
    assert found.left == model.count
    return True
