"""A release that asks costs one decision for all waiting runs, and one with a typo mended costs none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from agents.effect_handler import AgentEffects
from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.sdk.spec import AgentSpec
from approvals.decisions import batch
from approvals.decisions.decide import take_back
from approvals.errors import NotFound
from approvals.governance.version_changes import (
    list_half_withdrawn,
    list_latest_decisions,
    list_waiting,
)
from approvals.models import Approval, VersionDecision, VersionWithdrawal
from approvals.people.accounts import set_groups
from approvals.port.adapter import ApprovalService
from approvals.rights import principals
from approvals.rules.policy import Group
from approvals.signed import audit
from approvals.signed.rows import add
from runtime.control.interventions import send_message
from runtime.core.values.enums import GateKind
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.engine import HandDriven, events, start_run
from tests.support.pages import has, log_in, shows
from tests.support.released import released
from tests.support.seeds import Cast
from tests.support.specs import registry_of, spec_of
from tests.system.fault_injection.harness.counts import count

RUNS = count("RELEASE", short=12, long=500)
ADA, BEA = Actor(person="ada"), Actor(person="bea")


@tool(effect="idempotent", risk="medium", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return "paid"


@tool(effect="idempotent")
def lend(euros: int) -> str:
    """Lend."""
    return "lent"


@script
def pays(turn: Turn) -> Reply:
    """Pay once."""
    return say("Done.") if turn.results else call("pay", euros=40)


def desk(instructions: str = "Pya.", *tools: Any) -> AgentSpec:
    return spec_of("desk", instructions=instructions, tools=tools or (pay, lend), model=pays)


FIRST, MENDED, FEWER = desk(), desk("Pay."), desk("Pya.", pay)


class Release(HandDriven):
    """The worker of a release, with the real agents and approvals."""

    def __init__(self, spec: AgentSpec) -> None:
        self.fingerprint = released(spec)
        super().__init__(AgentEffects(registry_of(spec), lambda: None), ApprovalService())

    def start(self, number: int = 1, requester: Actor = ADA) -> list[UUID]:
        """Runs that wait for an approval."""
        runs = []
        for _ in range(number):
            runs.append(start_run("desk", {"name": "A-1"}, requester))
            assert self.advance_once(runs[-1]).status == "suspended"
        return runs

    def approve(self, *runs: UUID) -> set[str]:
        """Approve their calls as Bea, and take them further."""
        for run in runs:
            seeds.decide(Approval.objects.get(run=run, kind=GateKind.APPROVAL), BEA)
        return self.go_on(*runs)

    def go_on(self, *runs: UUID) -> set[str]:
        return {self.advance_once(run).status for run in runs}


@pytest.fixture
def releases(by_hand: None, cast: Cast) -> Iterator[Any]:
    made: list[Release] = []

    def release(spec: AgentSpec) -> Release:
        made.append(Release(spec))
        return made[-1]

    yield release
    for one in made:
        one.close()


@pytest.fixture
def anne(cast: Cast) -> Actor:
    """An admin who is a reviewer too."""
    return seeds.person("anne", Group.ADMINS, Group.REVIEWERS)


def _gates() -> int:
    return Approval.objects.filter(kind=GateKind.VERSION).count()


def _changes(run: UUID) -> list[tuple[str, str, str]]:
    found = [one for one in events(run) if one["type"] == "AgentChanged"]
    return [(one["before"], one["fingerprint"], one["by"]) for one in found]


def _continue(first: Release, second: Release, actor: Actor, **given: Any) -> Any:
    pair = {"agent": "desk", "before": first.fingerprint, "after": second.fingerprint}
    return batch.continue_all(
        **{**pair, "count": RUNS, "reason": "The new desk lends no money.", **given}, actor=actor
    )


def test_a_typo_in_a_prompt_costs_no_decision(releases: Any) -> None:
    first = releases(FIRST)
    runs = first.start(RUNS)
    second = releases(MENDED)
    assert second.approve(*runs) == {"completed"}
    assert (_gates(), list_waiting(None)) == (0, ())
    change = (first.fingerprint, second.fingerprint, "")
    assert [_changes(run) for run in runs] == [[change]] * RUNS


def test_one_decision_continues_every_run_of_a_change(releases: Any, anne: Actor) -> None:
    first = releases(FIRST)
    runs, later, own = first.start(RUNS), first.start(2), first.start(1, anne)
    second = releases(FEWER)
    assert second.approve(*runs) == {"suspended"}
    (pair,) = list_waiting(principals.find_principal(anne))
    assert (pair.count, pair.decidable, _gates()) == (RUNS, RUNS, RUNS)
    assert [(one.part, one.asks) for one in pair.differences or ()] == [("tool lend", True)]
    assert _continue(first, second, anne).continued == RUNS
    assert second.go_on(*runs) == {"completed"}
    gates = Approval.objects.filter(kind=GateKind.VERSION, decided_by="anne", status="approved")
    assert gates.count() == RUNS
    # Runs that reach the change later open no gate, and their journal names the admin. One of her own asks another.
    assert second.approve(*later) == {"completed"}
    change = (first.fingerprint, second.fingerprint, "anne")
    assert [_changes(run) for run in later] == [[change]] * 2
    assert (second.approve(*own), _gates()) == ({"suspended"}, RUNS + 1)
    (pair,) = list_waiting(principals.find_principal(anne))
    assert (pair.count, pair.decidable, pair.decided_by) == (1, 0, "anne")
    assert "anne started this run" in pair.refused_runs[0].refusal
    done = _continue(first, second, anne, count=1)
    assert (done.continued, [one.run for one in done.left]) == (0, own)
    assert "anne started this run" in done.left[0].reason
    assert second.go_on(*own) == {"suspended"}
    third = releases(desk("Pya.", lend))
    assert third.go_on(*own) == {"suspended"}, "another pair is another decision"


def test_a_decision_counts_only_signed_and_while_its_admin_may_decide(
    releases: Any, anne: Actor, cast: Cast
) -> None:
    first = releases(FIRST)
    runs = first.start(3)
    second = releases(FEWER)
    pair = {"agent": "desk", "before": first.fingerprint, "after": second.fingerprint}
    forged = VersionDecision(**pair, by="anne", reason="x", count=1, at=seeds.moment(0))
    add(forged)
    for field, other in (("before", "sha256:other"), ("by", "ada"), ("count", 2)):
        copy = VersionDecision.objects.get(pk=forged.pk)
        copy.pk = None
        setattr(copy, field, other)
        copy.save()
    with pytest.raises(DatabaseError), transaction.atomic():
        VersionDecision.objects.filter(pk=forged.pk).update(by="bea")
    given = {**pair, "run": runs[0], "requester": "ada", "origin": ("ada",)}
    counts = ApprovalService().find_version_decider
    assert counts(**given) == "anne"
    assert counts(**{**given, "requester": "anne"}) is None
    assert counts(**{**given, "origin": ("ada", "anne")}) is None
    assert counts(**{**given, "before": "sha256:other"}) is None
    assert second.approve(runs[0]) == {"completed"}
    for groups in ([Group.ADMINS], [Group.REVIEWERS]):
        set_groups("anne", groups, actor=None)
        assert counts(**given) is None
    assert (second.approve(*runs[1:]), _gates()) == ({"suspended"}, 2)


def test_a_decision_does_not_count_in_a_run_that_its_admin_has_just_steered(
    releases: Any, anne: Actor
) -> None:
    first = releases(FIRST)
    steered, other = first.start(2)
    second = releases(FEWER)
    pair = {"agent": "desk", "before": first.fingerprint, "after": second.fingerprint}
    add(VersionDecision(**pair, by="anne", reason="x", count=1, at=seeds.moment(0)))
    with transaction.atomic():
        send_message(run=steered, text="Pay now.", actor=anne)  # its journal does not name her yet
    second.approve(steered, other)
    change = (first.fingerprint, second.fingerprint, "anne")
    assert (_changes(steered), _changes(other), _gates()) == ([], [change], 1)


def test_a_withdrawn_decision_lets_no_later_run_continue(
    releases: Any, anne: Actor, settings: Any
) -> None:
    first = releases(FIRST)
    runs, later, last = first.start(2), first.start(1), first.start(1)
    second = releases(FEWER)
    second.approve(*runs)
    settings.SIGNOFF_UNDO_SECONDS = 60
    assert _continue(first, second, anne, count=2).continued == 2
    earlier = VersionDecision.objects.get()
    pair = {"agent": "desk", "before": first.fingerprint, "after": second.fingerprint}
    for actor in (ADA, BEA):
        with pytest.raises(NotFound):
            batch.withdraw(**pair, reason="No.", actor=actor)
    with pytest.raises(InvalidInput, match="is required"):
        batch.withdraw(**pair, reason=" ", actor=anne)
    admin = Actor(person="admin")
    assert batch.withdraw(**pair, reason="It lends.", actor=admin).opened == 2
    assert second.go_on(*runs) == {"suspended"}, "their decision could still be undone"
    settings.SIGNOFF_UNDO_SECONDS = 0
    assert (second.approve(*later), _gates()) == ({"suspended"}, 3)
    assert (list_latest_decisions(), audit.verify(runs[0])) == ((), 5)
    earlier.pk = None
    earlier.save(force_insert=True)  # a copy, by a program with write access
    assert (second.approve(*last), _gates()) == ({"suspended"}, 4)
    with pytest.raises(NotFound):
        batch.withdraw(**pair, reason="Again.", actor=admin)
    with pytest.raises(DatabaseError), transaction.atomic():
        VersionWithdrawal.objects.all().delete()
    assert _continue(first, second, anne, count=4).continued == 4
    assert second.go_on(*runs, *later, *last) == {"completed"}
    assert [one.by for one in list_latest_decisions()] == ["anne"]


@contextmanager
def _busy(run: UUID) -> Iterator[None]:
    """Another process has locked the run for longer than an admin waits."""
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as busy:
        busy.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", [run])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'")
            yield
            cursor.execute("RESET lock_timeout")


def test_busy_runs_are_passed_and_the_same_act_again_reaches_them(
    releases: Any, anne: Actor, settings: Any
) -> None:
    first = releases(FIRST)
    runs = first.start(3)
    second = releases(FEWER)
    second.approve(*runs)
    settings.SIGNOFF_UNDO_SECONDS = 60
    with _busy(runs[1]):
        done = _continue(first, second, anne, count=3)
    assert (done.continued, [(one.run, one.reason) for one in done.left]) == (
        2,
        [(runs[1], batch.STAYS)],
    )
    assert _continue(first, second, anne, count=1).continued == 1
    assert list_half_withdrawn() == ()
    given = {"agent": "desk", "before": first.fingerprint, "after": second.fingerprint}
    given |= {"reason": "It lends.", "actor": Actor(person="admin")}
    with _busy(runs[1]):
        done = batch.withdraw(**given)
        assert (done.opened, done.left) == (2, 1)
    assert [(one.by, one.busy_runs) for one in list_half_withdrawn()] == [("anne", 1)]
    page = shows(log_in(User.objects.get(username="admin")), "/version-changes/", "Withdraw again")
    has(page, "1 of its runs was busy and still continues")
    done = batch.withdraw(**given)
    assert (done.opened, done.left, list_half_withdrawn()) == (1, 0, ())
    assert second.go_on(*runs) == {"suspended"}
    assert VersionWithdrawal.objects.count() == 1


def test_a_withdrawal_reaches_the_decision_below_a_forged_row(releases: Any, anne: Actor) -> None:
    pair = {"agent": "desk", "before": "sha256:a", "after": "sha256:b"}
    given = {**pair, "reason": "x", "count": 1, "at": seeds.moment(0)}
    add(VersionDecision(**given, by="anne"))
    VersionDecision.objects.create(**given, by="ada")
    assert [one.by for one in list_latest_decisions()] == ["anne"]
    batch.withdraw(**pair, reason="No.", actor=Actor(person="admin"))
    assert list_latest_decisions() == ()


def test_a_withdrawal_leaves_the_decision_of_another_person(
    releases: Any, anne: Actor, settings: Any
) -> None:
    first = releases(FIRST)
    (run,) = first.start()
    second = releases(FEWER)
    second.approve(run)
    settings.SIGNOFF_UNDO_SECONDS = 60
    assert _continue(first, second, anne, count=1).continued == 1
    gate = Approval.objects.get(kind=GateKind.VERSION)
    assert not take_back(approval_id=gate.id, by="bea", actor=Actor(person="admin"))
    assert take_back(approval_id=gate.id, by="anne", actor=Actor(person="admin"))


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "another count": ({"count": RUNS + 1}, InvalidInput, f"which is {RUNS}"),
    "no count": ({"count": None}, InvalidInput, "count"),
    "a truth": ({"count": True}, InvalidInput, "count"),
    "no reason": ({"reason": " "}, InvalidInput, "reason"),
    "another pair": ({"after": "sha256:other"}, NotFound, ""),
    "no text": ({"agent": ["desk"]}, NotFound, ""),
}


def test_what_is_refused_decides_nothing(releases: Any, anne: Actor, cast: Cast) -> None:
    first = releases(FIRST)
    runs = first.start(RUNS)
    second = releases(FEWER)
    second.approve(*runs)
    for given, error, said in REFUSED.values():
        with pytest.raises(error) as caught:
            _continue(first, second, anne, **given)
        assert said in f"{getattr(caught.value, 'field', '')} {caught.value}"
    admin = Actor(person="admin")
    for other in ("\x00", "\ud800"):
        with pytest.raises(NotFound):
            batch.withdraw(agent="desk", before=other, after="b", reason="x", actor=admin)
    for actor, refusal in ((BEA, NotFound), (ADA, NotFound), (admin, Forbidden)):
        with pytest.raises(refusal):
            _continue(first, second, actor)
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM agents_agentversion WHERE fingerprint = %s", [first.fingerprint]
        )
    with pytest.raises(InvalidInput, match="never published"):
        _continue(first, second, anne)
    assert not VersionDecision.objects.exists()
    assert set(Run.objects.values_list("status", flat=True)) == {"suspended"}
