"""Runs on the real engine, advanced by hand in the test's own thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import transaction

from agents.effect_handler import Handler
from agents.llm.rate_limits import Brakes
from agents.registry import Registry
from runtime.control.settle import settle
from runtime.control.start import create
from runtime.core.documents.codec import decode_entry, documents_of
from runtime.core.enums import Decision, Verdict
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import Heartbeat
from runtime.execution.runner import WorkerContext
from runtime.models import Gate, JournalEntry, Run
from runtime.ports.access import Actor
from runtime.ports.approvals import ActionPicture
from tests.support.fake_ports import FakeGatekeeper
from tests.support.people import until

AT_REST = ("suspended", "completed", "failed", "cancelled", "quarantined")


class Engine:
    """One worker's bench; Ada starts runs, Bea decides."""

    def __init__(self, bench: WorkerContext) -> None:
        self.bench = bench

    def begin(self, agent: str, content: Any) -> Run:
        """A new run, as far as it goes without people."""
        with transaction.atomic():
            run = create(agent=agent, input=content, requester=Actor(person="ada")).run
        return self.go_on(run)

    def decide(
        self, run: Run, verdict: Verdict, reason: str = "", *, tool: str | None = None
    ) -> Run:
        """Settle the one open gate, or the one of `tool`, and go on."""
        (gate,) = [gate for gate in self.gates(run) if tool in (None, self.tool_at(gate))]
        with transaction.atomic():
            settle(gate=gate, decision=Decision(verdict=verdict, by="bea", reason=reason))
        return self.go_on(run.id)

    def go_on(self, run: UUID) -> Run:
        """Advance until only people can; waits between attempts are waited for."""

        def rested() -> Run | None:
            advance(run, self.bench)
            found = Run.objects.get(id=run)
            return found if found.status in AT_REST else None

        return until(rested, f"run {run} to rest")

    def gates(self, run: Run) -> list[UUID]:
        return list(Gate.objects.filter(run=run.id, state="open").values_list("id", flat=True))

    def tool_at(self, gate: UUID) -> str:
        (tool,) = [picture.tool for picture in self.pictures if picture.gate == gate]
        return tool

    @property
    def pictures(self) -> list[ActionPicture]:
        """What reviewers were shown."""
        gatekeeper = self.bench.gatekeeper
        assert isinstance(gatekeeper, FakeGatekeeper)
        return gatekeeper.pictures


def events_of(run: Run) -> list[dict[str, Any]]:
    """Everything in the journal of a run, in order."""
    bodies = JournalEntry.objects.filter(run_id=run.id).order_by("position")
    return [
        event
        for body in bodies.values_list("body", flat=True)
        for event in documents_of(decode_entry(body).events)
    ]


@contextmanager
def engine_of(registry: Registry, brakes: Brakes | None = None) -> Iterator[Engine]:
    heartbeat = Heartbeat()
    heartbeat.start()
    handler = Handler(registry, brakes=brakes)
    effect_pool = EffectPool(handler, slots=4)
    gatekeeper = FakeGatekeeper()
    yield Engine(
        WorkerContext(
            handler=handler, gatekeeper=gatekeeper, effect_pool=effect_pool, heartbeat=heartbeat
        )
    )
    heartbeat.stop()
    effect_pool.close()
