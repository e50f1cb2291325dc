"""The bench in the place of the web process: starts runs, reads them, decides their gates."""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from approvals.decisions import decide
from approvals.models import Approval
from approvals.requests import confirmation
from config import wiring
from runtime.control.start import start
from runtime.ports.access import Actor
from runtime.store import pool
from tests.support.people import until
from tests.support.seeds import assemble

ADA, BEA = Actor(person="ada"), Actor(person="bea")
ENDS = ("completed", "failed", "cancelled", "quarantined")
TIMEOUT_SECONDS = 120.0


class Desk:
    """Ada and Bea, on this process's connections: the engine's side of a comparison."""

    name = "ours"

    def __init__(self) -> None:
        from django.contrib.auth.models import User

        import config.celery  # noqa: F401 - the app that hints go through

        wiring.connect()
        if not User.objects.exists():
            assemble()

    def start(self, agent: str, given: Any, /) -> UUID:
        """Start a run as a person does: with a look at rights and at the agent's input."""
        return start(agent=agent, input=given, business_key=None, actor=ADA).run

    def pending(self, runs: Sequence[UUID], /) -> dict[UUID, dict[str, Any]]:
        """Return the form to approve the pending request of each run, as a page shows it."""
        return {
            approval.run_id: {
                "approval_id": approval.id,
                "digest": approval.approval_digest,
                "confirm": confirmation.find_required_name(approval),
            }
            for approval in Approval.objects.filter(run__in=runs, status="pending")
        }

    def approve(self, form: dict[str, Any], /) -> None:
        decide.decide(**form, verdict="approve", reason="", actor=BEA)

    def output(self, run: UUID, /) -> str:
        with pool.pooled() as connection:
            query = "SELECT output FROM runtime_run WHERE id = %s"
            ((text,),) = connection.execute(query, (run,)).fetchall()
        return str(json.loads(text))

    def look(self, runs: Iterable[UUID]) -> dict[UUID, str]:
        """The status of each; asked as cheaply as the loops to compare with are asked."""
        with pool.pooled() as connection:
            query = "SELECT id, status FROM runtime_run WHERE id = ANY(%s)"
            return dict(connection.execute(query, (list(runs),)).fetchall())

    def until_ended(self, runs: Iterable[UUID], status: str = "completed") -> None:
        def ended() -> bool | None:
            return set(self.look(runs).values()) == {status} or None

        until(ended, f"every run to be {status}", TIMEOUT_SECONDS)
