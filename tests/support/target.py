"""An office whose stored rows a test changes, and which other workers take runs from."""

from collections.abc import Iterator
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from approvals.models import Request
from runtime.core.enums import EffectClass, Verdict
from runtime.errors import Forbidden
from runtime.models import Continuation, JournalEntry, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolRequest, ToolResult
from runtime.store import pool
from runtime.store.tables import continuations
from tests.support.cast import Cast
from tests.support.fake_ports import FakeTool
from tests.support.office import BEA, Office
from tests.support.seeds import decide


def refused(run: UUID, actor: Actor) -> str:
    """Return the code with which the actor may not approve the run's open request."""
    with pytest.raises(Forbidden) as caught:
        approve(run, actor)
    return caught.value.code


def approve(run: UUID, actor: Actor) -> None:
    """Approve the run's open request."""
    decide(Request.objects.get(run=run, status="pending"), actor, reason="ok")


class Target(Office):
    """Runs with a gated call, stored states to tamper with, and the outcome."""

    def decide(self, run: UUID, verdict: Verdict = Verdict.APPROVE, reason: str = "") -> Request:
        """Decide the oldest pending request as Bea; no worker has claimed the run since."""
        asked = Request.objects.filter(run=run, status="pending").earliest("created_at", "id")
        decide(asked, BEA, verdict, reason)
        return Request.objects.get(id=asked.id)

    def decided(self, verdict: Verdict = Verdict.APPROVE) -> UUID:
        """A run with a decision that no worker has read."""
        run = self.start()
        self.decide(run, verdict)
        return run

    def abandoned(self) -> UUID:
        """An approved run whose worker was replaced in the middle: it has entries after its continuation."""
        self.effects.tools["send_welcome_mail"] = FakeTool(
            effect=EffectClass.IDEMPOTENT, body=_robbed
        )
        run = self.decided()
        with patch.object(continuations, "needs_brief", lambda covered, tail, release: False):
            self.advance(run)
        self.effects.tools["send_welcome_mail"] = FakeTool(effect=EffectClass.IDEMPOTENT)
        with pool.own() as own:
            own.execute(
                "UPDATE runtime_run SET owner = NULL, lease_until = NULL, due_at = now()"
                " WHERE id = %s",
                (run,),
            )
        assert Run.objects.get(id=run).position > Continuation.objects.get(run=run).position
        return run

    def started(self, run: UUID, tool: str = "set_privileges") -> int:
        """Count the starts of the tool for this run."""
        return sum(call.run == run and call.tool == tool for call in self.effects.calls)

    def touch(self, table: str, run: UUID, change: str, *values: object) -> None:
        """UPDATE the stored state of a run, as no code of ours does."""
        column = "id" if table == "runtime_run" else "run_id"
        with pool.own() as own:
            own.execute(f"UPDATE {table} SET {change} WHERE {column} = %s", (*values, run))

    def assert_parked(self, run: UUID, reason: str) -> None:
        """Advancing it starts nothing, writes nothing, and parks it with this reason."""
        before = (len(self.effects.calls), len(self.effects.models), _entries(run))
        self.context.recent._runs.clear()  # as in a process that has verified none of its entries
        after = self.advance(run)
        assert after.status == "quarantined", after.status
        assert reason in (after.reason or ""), after.reason
        assert (after.due_at, after.owner) == (None, None)
        assert (len(self.effects.calls), len(self.effects.models), _entries(run)) == before
        Run.objects.filter(id=run).update(due_at="2000-01-01T00:00:00Z")
        assert self.advance(run).status == "quarantined"  # also after a hint
        assert (len(self.effects.calls), len(self.effects.models), _entries(run)) == before


@pytest.fixture
def target(by_hand: None, cast: Cast) -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


def _entries(run: UUID) -> int:
    return JournalEntry.objects.filter(run_id=run).count()


def _robbed(request: ToolRequest) -> ToolResult:
    """Another worker took the run while the tool was under way."""
    with pool.own() as own:
        own.execute(
            "UPDATE runtime_run SET epoch = epoch + 1, owner = %s WHERE id = %s",
            (uuid4(), request.run),
        )
    return ToolResult(value={"sent": True})
