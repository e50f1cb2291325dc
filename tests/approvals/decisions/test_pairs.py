"""Any two of approve, deny, cancel, expire, extend, undo and settle at once end as if one had followed the other.

For each pair and each kind of request, the test first plays both orders, with time passing before, between or after
them. A round on real connections must end like one of those, with the same answers to both callers.
FAULTS_R5 says how many rounds there are.
"""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import combinations_with_replacement
from threading import Barrier

import pytest
from django.db import connection
from pytest_django import Settings

from approvals import clock
from approvals.decisions import decide
from approvals.decisions.teamwork import extend
from approvals.errors import ApprovalError, Expired
from approvals.models import Approval, AuditEntry
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from approvals.signed import audit
from runtime.control.interventions import cancel as cancel_run
from runtime.core.values.enums import Decision, GateKind, Risk, Verdict
from runtime.errors import InvalidInput, RunEnded
from runtime.models import Gate, Signal
from runtime.ports.access import Actor
from runtime.store.tables.signals import GATE_DECIDED
from tests.support import seeds
from tests.support.threads import together
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ROUNDS = count("R5", short=168, long=10_000)
WINDOW = 3600.0
SOON = timedelta(minutes=10)
# Milliseconds until a request is due; one that is decided before needs time for that.
DUE, UNDONE = (-1, 3, 6, 12, 600_000), (30, 45, 60, 600_000)
# Whether each of the two acts after the deadline. A call in doubt has none, unless it has an undo window.
MOMENTS = ((False, False), (False, True), (True, True))

BEA, DAN = Actor(person="bea"), Actor(person="dan")
Act = Callable[[Approval], object]
Case = tuple[str, str, GateKind]
Ending = tuple[object, ...]


def _decide(approval: Approval, verdict: str) -> None:
    seeds.decide(approval, DAN, verdict, "No." if verdict == "deny" else "")


def _settle(approval: Approval, actor: Actor = DAN) -> None:
    seeds.settle(approval, actor)


def _cancel(approval: Approval) -> None:
    cancel_run(run=approval.run_id, actor=Actor(person="cyril"), reason="Not needed.")


def _extend(approval: Approval) -> None:
    until = (approval.created_at + timedelta(days=1)).isoformat()  # the same for both
    extend(approval_id=approval.id, until=until, reason="Later.", actor=BEA)


ACTS: dict[str, Act] = {
    "approve": partial(_decide, verdict="approve"),
    "deny": partial(_decide, verdict="deny"),
    "cancel": _cancel,
    "expire": lambda approval: ApprovalService().expire(approval.gate),
    "extend": _extend,
    "undo": lambda approval: decide.undo(approval_id=approval.id, actor=BEA),
    "settle": _settle,
}
CASES: list[Case] = [
    (one, other, kind)
    for one, other in combinations_with_replacement(ACTS, 2)
    for kind in (GateKind.APPROVAL, GateKind.IN_DOUBT)
]


def test_two_actions_end_as_if_in_turn(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SIGNOFF_UNDO_SECONDS = WINDOW
    for name in ("bea", "dan"):
        seeds.person(name, Group.REVIEWERS)
    seeds.person("cyril", Group.REQUESTERS)
    began_at, dead = time.monotonic(), _deadlocks()
    allowed = {case: _in_turn(case, monkeypatch) for case in CASES}
    cases = [CASES[number % len(CASES)] for number in range(ROUNDS)]
    seen: defaultdict[Case, Counter[Ending]] = defaultdict(Counter)
    for case, ending in zip(cases, _at_once(cases), strict=True):
        seen[case][ending] += 1
    wrong = [
        (case, ending) for case in seen for ending in seen[case] if ending not in allowed[case]
    ]
    contested = [case for case in seen if len(seen[case]) > 1]
    deadlocks = _deadlocks() - dead
    say(
        f"FIGURES races of pairs: {ROUNDS} rounds of {len(CASES)} pairs, {len(contested)} of them with"
        f" more than one ending, {len(wrong)} endings that no order gives, {deadlocks} deadlocks,"
        f" {time.monotonic() - began_at:.0f} s"
    )
    assert wrong == []
    assert deadlocks == 0
    assert len(contested) >= 5, "this was no race"


def _contended(case: Case, spread: random.Random) -> Approval:
    """A subject whose time may come while the two act."""
    while True:
        soon = timedelta(milliseconds=spread.choice(UNDONE if "undo" in case else DUE))
        try:
            return _subject(case, clock.read_time() + soon)
        except Expired:  # before Bea had decided
            continue


def _subject(case: Case, due: datetime) -> Approval:
    """Return the request for both actions; for an undo, Bea has just decided it."""
    one, other, kind = case
    timed = None if kind is GateKind.IN_DOUBT else due  # a call in doubt waits as long as it takes
    approval = seeds.pending(requester="cyril", kind=kind, risk=Risk.MEDIUM, expires_at=timed)
    if "undo" in (one, other):
        if kind is GateKind.IN_DOUBT:
            _settle(approval, BEA)
        else:
            seeds.decide(approval, BEA)
    return approval


def _act(name: str, approval: Approval) -> str:
    try:
        ACTS[name](approval)
    except (ApprovalError, InvalidInput, RunEnded) as refused:
        return type(refused).__name__
    return "done"


def _ending(approval: Approval, heard: tuple[str, str]) -> Ending:
    """All that there is to see afterwards: what both heard, request, gate, signals and audit in their order."""
    approval.refresh_from_db()
    audit.verify(approval.run_id)
    acts = AuditEntry.objects.filter(run=approval.run_id).order_by("seq")
    signals = Signal.objects.filter(run=approval.run_id).order_by("id")
    decisions = [json.loads(one.body) for one in signals if one.kind == GATE_DECIDED]
    assert len(decisions) <= 1, "two decisions of one gate"
    for one in decisions:
        said = {name: one[name] for name in ("by", "reason")}
        _verify_decision(approval, Decision(verdict=Verdict(one["verdict"]), **said))
    return (
        heard,
        approval.status,
        approval.decided_by,
        Gate.objects.get(pk=approval.gate).state,
        approval.first_expires_at is not None,
        tuple(one.kind for one in signals),
        tuple((one["verdict"], one["by"]) for one in decisions),
        tuple((one.act, one.actor) for one in acts),
    )


def _verify_decision(approval: Approval, decision: Decision) -> None:
    """Verify the decision as a worker does after its undo window."""
    with pytest.MonkeyPatch.context() as patch:
        moment = approval.effective_at or approval.expires_at
        if moment is not None:
            seeds.set_clock(patch, moment)
        seeds.verify_decision(approval, decision)


def _in_turn(case: Case, monkeypatch: pytest.MonkeyPatch) -> set[Ending]:
    """Every ending of the two one after the other, time passing where it may."""
    endings = set()
    for first, second in ((0, 1), (1, 0)):
        for late in MOMENTS if case[2] is GateKind.APPROVAL or "undo" in case else MOMENTS[:1]:
            due = clock.read_time() + SOON
            approval = _subject(case, due)
            heard = ["", ""]
            for who, is_late in ((first, late[0]), (second, late[1])):
                with monkeypatch.context() as patch:
                    if is_late:
                        seeds.set_clock(patch, due + timedelta(seconds=1))
                    heard[who] = _act(case[who], approval)
            endings.add(_ending(approval, (heard[0], heard[1])))
    return endings


def _at_once(cases: list[Case]) -> list[Ending]:
    """The ending of each round; each of the two has a start now and then, or the quicker one would win all."""
    spread = random.Random(5)
    approvals: list[Approval] = []
    heard: list[tuple[str, str]] = []
    said = ["", ""]

    def new_round() -> None:
        approvals.append(_contended(cases[len(approvals)], spread))

    def note() -> None:
        heard.append((said[0], said[1]))

    ready, over = Barrier(2, timeout=60, action=new_round), Barrier(2, timeout=60, action=note)

    def play(who: int) -> None:
        chance = random.Random(who)
        for number, case in enumerate(cases):
            ready.wait()
            if (number // len(CASES)) % 2 == who:
                time.sleep(chance.uniform(0, 0.006))
            said[who] = _act(case[who], approvals[-1])
            over.wait()

    together([partial(play, 0), partial(play, 1)], within=120 + len(cases))
    return [_ending(*one) for one in zip(approvals, heard, strict=True)]


def _deadlocks() -> int:
    """Count the deadlocks of this database; its statistics must be flushed first to be current."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
