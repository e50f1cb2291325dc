"""The people of these tests, and the checks of a run: started by Ada, decided by Bea."""

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from approvals.decisions import decide
from approvals.decisions.teamwork import ASKED, extend, inquire
from approvals.errors import ApprovalError, TooEarly
from approvals.models import Approval, AuditEntry
from approvals.requests import confirmation, snapshot
from runtime.control.external_events import deliver
from runtime.control.interventions import cancel, pause, resume, send_message
from runtime.control.start import create
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.enums import CallState, EffectClass, GateKind
from runtime.errors import RunEnded
from runtime.execution.effects.perform import make_idempotency_key
from runtime.models import Gate, Run, Signal, WaitingCall, WorkerProcess
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import journal
from tests.support.engine import events, types
from tests.support.scripted_agents import ledger
from tests.support.scripted_agents.scores import Score, planned

ADA, BEA, ADMIN = Actor(person="ada"), Actor(person="bea"), Actor(person="admin")
ENDS = ("completed", "failed", "cancelled", "quarantined")
EXTENDED = "GateExtended"
ANSWERS = ("QuestionAnswered", "QuestionFailed")
ONCE, AGAIN = ("send", "stay", "pay", "book", "labour"), ("look", "put", "insist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """All actions of people, who learn outcomes from the ledger."""

    ledger: Path

    def start(self, score: Score) -> UUID:
        with transaction.atomic():
            return create(
                agent="outer", input={"turns": score.turns}, requester=ADA, budget=score.budget
            ).run

    def tend(self, run: UUID, score: Score) -> str:
        """Do the actions that the run waits for. Returns its status."""
        too_early = (score.paused and self._hold_up(run)) or (score.written and self._write(run))
        too_early = too_early or types(run).count("FrameClosed") < score.closed
        if not too_early:
            for approval in Approval.objects.filter(run=run, status=Approval.Status.PENDING):
                with suppress(TooEarly, ApprovalError):
                    self._decide(approval, score)
            if score.cancelled:
                self._cancel(run, score)
            self._tell(run)
        return Run.objects.values_list("status", flat=True).get(id=run)

    def _decide(self, approval: Approval, score: Score) -> None:
        """Resolve a call in doubt by the ledger, and grant one more of everything that is used up."""
        if approval.kind == GateKind.IN_DOUBT:
            key = make_idempotency_key(approval.run_id, approval.frame, approval.call)
            happened = ledger.happened(self.ledger, key)
            decide.resolve(
                run=approval.run_id,
                gate=approval.gate,
                outcome="happened" if happened else "run_again",
                result="as the ledger says" if happened else snapshot.ABSENT,
                reason="",
                actor=BEA,
                confirm=confirmation.find_required_name(approval),
            )
            return
        if score.asked and approval.kind == GateKind.APPROVAL and self._asks(approval):
            return
        if score.extended and approval.kind == GateKind.APPROVAL and self._extends(approval):
            return
        verdict, grant = "deny" if score.denied else "approve", None
        if approval.kind == GateKind.LIMIT:
            used_up = json.loads(approval.args)["limits"]
            verdict, grant = "continue", {one["limit"]: 1 for one in used_up}
        elif score.cancelled:
            return
        decide.decide(
            approval_id=approval.id,
            verdict=verdict,
            digest=approval.approval_digest,
            reason="No." if score.denied else "",
            actor=BEA,
            grant=grant,
            confirm=confirmation.find_required_name(approval),
        )

    def _hold_up(self, run: UUID) -> bool:
        """Pause it at its first gate, then resume it. Whether it is too early for anything else."""
        happened = types(run)
        if "Resumed" in happened:
            return False
        if "GateOpened" in happened:
            with transaction.atomic():
                if "Paused" in happened:
                    resume(run=run, actor=ADA, reason="")
                else:
                    pause(run=run, actor=ADA, reason="")
        return True

    def _write(self, run: UUID) -> bool:
        """Write to it once at its first gate. Whether it is too early for anything else."""
        waits = Signal.objects.filter(run=run).exists()  # first: it is taken up at any moment
        happened = types(run)
        if "MessageReceived" in happened:
            return False
        if "GateOpened" in happened and not waits:
            send_message(run=run, actor=ADA, text="mind the gap")
        return True

    def _asks(self, approval: Approval) -> bool:
        """Ask two questions, one after the other: one is answered. Whether it is too early to decide."""
        asked = AuditEntry.objects.filter(run=approval.run_id, act=ASKED)
        ended = [kind for kind in types(approval.run_id) if kind in ANSWERS]
        if len(ended) == asked.count():
            left = ("Why?", "fail")[asked.filter(subject=f"request {approval.id}").count() :]
            if not left:
                return False
            inquire(approval_id=approval.id, question=left[0], actor=BEA)
        return True

    def _extends(self, approval: Approval) -> bool:
        """Extend its deadline once. Whether it is too early to decide."""
        if approval.extensions is None:
            assert approval.expires_at is not None
            later = approval.expires_at + timedelta(hours=1)
            extend(approval_id=approval.id, until=later.isoformat(), reason="Busy.", actor=BEA)
        gates = {event["gate"] for event in events(approval.run_id) if event["type"] == EXTENDED}
        return str(approval.gate) not in gates

    def _tell(self, run: UUID) -> None:
        """Tell of what its calls wait for, and tell it twice."""
        for wait in WaitingCall.objects.filter(run=run):
            event = f"{run}/{wait.frame}/{wait.call}"
            for _ in range(2):
                deliver(id=event, name=wait.event, data=wait.match, actor=ADMIN)

    def _cancel(self, run: UUID, score: Score) -> None:
        """Once the call lingers and every gate is open; then let it go."""
        if "Cancelling" in types(run):
            ledger.mark(self.ledger, f"{run}-enough")
        elif Path(f"{self.ledger}.{run}-lingers").exists() and (
            planned(score.turns, "pay") == 0 or Gate.objects.filter(run=run, state="open").exists()
        ):
            with suppress(RunEnded):
                cancel(run=run, actor=ADA, reason="not needed any more")


def verified(run: UUID) -> Continuation:
    """The state of a run, folded from its whole journal. Raises Tampered for a gap or an entry that does not verify."""
    with pool.pooled() as connection:
        row = connection.execute(
            "SELECT position, head FROM runtime_run WHERE id = %s", (run,)
        ).fetchone()
        assert row is not None
        mark, entries = journal.read(connection, run)
        return journal.fold_entries(
            make_initial_state(run), mark, entries, position=row[0], head=row[1]
        )


def writes_under_way(now: Continuation) -> list[str]:
    """The keys of `write` calls between their intent and their result."""
    return [
        make_idempotency_key(now.run, frame.id, call.id)
        for frame in now.frames.values()
        for call in frame.calls
        if call.state is CallState.STARTED
        and call.terms is not None
        and call.terms.effect is EffectClass.WRITE
    ]


def in_doubt_gates(run: UUID) -> int:
    return Gate.objects.filter(run=run, kind=GateKind.IN_DOUBT).count()


def stuck() -> list[UUID]:
    """Live runs that nothing will ever move again: no live lease, no open gate, nothing due."""
    live = Run.objects.exclude(status__in=ENDS)
    live_workers = WorkerProcess.objects.filter(lease_until__gt=timezone.now())
    held = Q(owner__isnull=False, worker__in=live_workers.values("id"))
    waiting = Q(due_at__isnull=False) | Q(gates__state="open")
    return list(live.exclude(held).exclude(waiting).values_list("id", flat=True))


def problems(lines: Iterable[ledger.Effect], run: UUID, score: Score) -> list[str]:
    """Return the errors of an ended run with these lines in the ledger."""
    row = Run.objects.get(id=run)
    found = [] if row.status == score.ends else [f"{row.status} ({row.reason}), not {score.ends}"]
    verified(run)
    told = events(run)
    heard = sum(event.get("heard", 0) for event in told)
    if score.written and heard != 1:
        found.append(f"its one message was heard {heard} times")
    arrived = sum(one["type"] == "WaitEnded" and one.get("outcome") == "arrived" for one in told)
    if arrived != planned(score.turns, "wait_for"):
        found.append(f"{arrived} events arrived")
    found += over_limit(told)
    return found + outside(str(run), score, told, ledger.effects_of(lines, run))


def over_limit(told: Iterable[dict[str, Any]]) -> list[str]:
    """Return the frames below which more frames were open at once than the reply allowed."""
    at_once: dict[str, int] = {}
    is_open: Counter[str] = Counter()
    found: list[str] = []
    for event in told:
        match event["type"]:
            case "ModelReplied":
                at_once[event["frame"]] = event.get("at_once", 0)
            case "FrameOpened":
                is_open[event["parent"]] += 1
            case "FrameClosed":
                is_open[event["frame"].rpartition(".c")[0]] -= 1
        found += [
            f"{count} frames open at once below {parent}"
            for parent, count in is_open.items()
            if 0 < at_once.get(parent, 0) < count
        ]
    return found


def outside(
    run: str,
    score: Score,
    told: Iterable[dict[str, Any]],
    effects: Iterable[ledger.Effect],
    but: Iterable[str] = (),
) -> list[str]:
    """Compare effects with the events of their run, for all tools `but` some. Keys are of started calls alone."""
    proposed: dict[str, str] = {}
    tools: dict[str, str] = {}
    turns: Counter[str] = Counter()
    for event in told:
        if event["type"] == "ModelReplied":
            turns[event["frame"]] += 1
            for index, proposal in enumerate(event["calls"]):
                key = f"{run}/{event['frame']}/c{turns[event['frame']]}.{index}"
                proposed[key] = proposal["tool"]
        if event["type"] == "ToolStarted":
            key = f"{run}/{event['frame']}/{event['call']}"
            tools[key] = proposed[key]
    happened = Counter(effect.key for effect in effects)
    found = [f"{key} happened without an intent" for key in happened if key not in tools]
    found += [
        f"repeated: {tools[key]} {key} happened {count} times"
        for key, count in happened.items()
        if count > 1 and tools.get(key) in ONCE
    ]
    if score.denied and "pay" in tools.values():
        found.append("a denied call was started")
    if score.ends in ("completed", "failed"):
        for tool in {*ONCE, *AGAIN}.difference(but):
            done = sum(tools.get(key) == tool for key in happened)
            wanted = 0 if score.denied and tool == "pay" else planned(score.turns, tool)
            if done != wanted:
                found.append(f"lost: {done} of {wanted} {tool} of {run} happened")
    return found
