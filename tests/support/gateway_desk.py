"""A worker with a gateway to the ticket system of tests, which the test advances by hand."""

from pathlib import Path
from typing import Any
from uuid import UUID

from agents.effect_handler import AgentEffects
from agents.sdk.spec import AgentSpec
from agents.tools.mcp import mcp_tools
from agents.tools.mcp_gateway import mcp_gateway
from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from runtime.models import Run
from runtime.ports.access import Actor
from tests.agents.tools.test_mcp import READS, WRITES
from tests.support.engine import HandDriven
from tests.support.people import until
from tests.support.released import released
from tests.support.seeds import decide
from tests.support.specs import registry_of

TEA = {"title": "Tea"}


def gateway(url: str, accepted: Path) -> AgentSpec:
    """The gateway `tickets` to an upstream server."""
    settings = {"Create-Ticket": WRITES, "search": READS}
    return mcp_gateway("tickets", mcp_tools(url, accepted, tools=settings, private=True))


class Desk(HandDriven):
    """A worker with the gateway `tickets`; Bea decides."""

    def __init__(self, spec: AgentSpec) -> None:
        released(spec)
        super().__init__(AgentEffects(registry_of(spec)), ApprovalService())

    def advance(self, run: UUID) -> str:
        return str(self.advance_once(run).status)

    def run(self, number: int = 1) -> UUID:
        """The last run, once there are so many."""
        runs = Run.objects.filter(agent="tickets").order_by("-created_at")
        last = until(lambda: runs.first() if runs.count() == number else None, f"{number} runs")
        return UUID(str(last.id))

    def ask_people(self, number: int = 1) -> Approval:
        """The request of the last run."""
        run = self.run(number)
        assert self.advance(run) == "suspended"
        return Approval.objects.filter(run=run).latest("created_at")

    def decide(
        self, asked: Approval, verdict: str = "approve", reason: str = "", **more: Any
    ) -> str:
        decide(asked, Actor(person="bea"), verdict, reason, **more)
        return self.advance(asked.run_id)
