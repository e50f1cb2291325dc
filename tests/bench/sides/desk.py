"""The bench in the place of the web process: starts runs, reads them, decides their gates."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction

from approvals.decisions import decide
from approvals.models import Request
from config import wiring
from runtime.control.start import create
from runtime.control.start import start as start_run
from runtime.ports.access import Actor
from runtime.store import pool
from tests.support.cast import assemble

ADA, BEA = Actor(person="ada"), Actor(person="bea")
ENDS = ("completed", "failed", "cancelled", "quarantined")
TIMEOUT_SECONDS = 120.0


class Desk:
    """Ada and Bea, on this process's connections."""

    def __init__(self) -> None:
        from django.contrib.auth.models import User

        import config.celery  # noqa: F401 - the app that hints go through

        wiring.connect()
        if not User.objects.exists():
            assemble()

    def start(self, agent: str, given: dict[str, Any]) -> UUID:
        with transaction.atomic():
            return create(agent=agent, input=given, requester=ADA).run

    def ask(self, agent: str, given: Any) -> UUID:
        """Start a run as a person does: with a look at rights and at the agent's input."""
        return start_run(agent=agent, input=given, business_key=None, actor=ADA).run

    def pending(self, runs: Sequence[UUID]) -> dict[UUID, tuple[UUID, str]]:
        """Return the id and the digest of the pending request of each run, as a page shows them."""
        rows = Request.objects.filter(run__in=runs, status="pending")
        return {
            run: (id_, digest)
            for run, id_, digest in rows.values_list("run", "id", "request_digest")
        }

    def decide(self, found: tuple[UUID, str]) -> None:
        request, digest = found
        decide.decide(request=request, verdict="approve", digest=digest, reason="", actor=BEA)

    def output(self, run: UUID) -> str:
        """The last text of a run that ended."""
        with pool.pooled() as connection:
            ((text,),) = connection.execute(
                "SELECT output FROM runtime_run WHERE id = %s", (run,)
            ).fetchall()
        return str(json.loads(text))

    def look(self, runs: Iterable[UUID]) -> dict[UUID, str]:
        """The status of each; asked as cheaply as the loops to compare with are asked."""
        with pool.pooled() as connection:
            rows = connection.execute(
                "SELECT id, status FROM runtime_run WHERE id = ANY(%s)", (list(runs),)
            )
            return dict(rows.fetchall())

    def waits(self, run: UUID) -> bool:
        """Tell whether the run waits for a person. After a decision, its status alone would say so too early."""
        return Request.objects.filter(run=run, status="pending").exists()

    def approve(self, run: UUID) -> None:
        request = Request.objects.get(run=run, status="pending")
        decide.decide(
            request=request.id,
            verdict="approve",
            digest=request.request_digest,
            reason="",
            actor=BEA,
        )


def until_ended(
    look: Callable[[Iterable[UUID]], dict[UUID, str]], runs: Iterable[UUID]
) -> dict[UUID, float]:
    """Return when each run was seen to have ended, by the steady clock. Raise AssertionError if one fails."""
    waiting, ended = set(runs), dict[UUID, float]()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} runs did not end"
        for run, status in look(waiting).items():
            assert status not in ENDS[1:], f"run {run} is {status}"
            if status == "completed":
                ended[run] = time.monotonic()
                waiting.discard(run)
        time.sleep(0.003)
    return ended
