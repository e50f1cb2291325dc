"""Late outcomes on the page of the call in doubt and on the page of its run."""

from contextlib import suppress
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from django.test import Client

from approvals.models import AuditEntry, Request
from runtime.core.continuation import RunStatus
from runtime.errors import RunEnded
from runtime.models import Gate
from runtime.store import pool, runs
from runtime.store.tables import late_outcomes
from tests.support.api_client import Caller
from tests.support.engine import events
from tests.support.office import MAIL_RESULT, Office
from tests.support.pages import has, send, shows, text


def arrives(run: UUID, *, result: object = MAIL_RESULT, error: str = "") -> None:
    """Record the late outcome of the first attempt at the call in doubt."""
    gate = Gate.objects.get(run=run, kind="in_doubt")
    started = [one for one in events(run) if one["type"] == "ToolStarted"]
    with pool.own() as own, own.transaction():
        late = late_outcomes.LateOutcome(
            run=run,
            frame=gate.frame,
            call=gate.call,
            attempt=1,
            started_at=datetime.fromisoformat(str(started[-1]["at"])),
            worker=uuid4(),
            at=datetime.fromisoformat(str(started[-1]["at"])),
            outcome="failed" if error else "returned",
            result=None if error else result,
            error=error,
        )
        assert late_outcomes.insert(own, late)
        with suppress(RunEnded):
            runs.notify_signal(own, run)


def pages(client: Client, request: Request) -> list[str]:
    """Return the page of the call in doubt and the page of the run."""
    return [text(client, request), text(client, request.run_id)]


def test_a_doubt_that_a_late_outcome_settled(bea: Client, office: Office, doubt: Request) -> None:
    arrives(doubt.run_id)
    for page in pages(bea, doubt):
        has(page, "A worker applies it next, unless a person settles the call first.")
    assert office.advance(doubt.run_id).status == RunStatus.COMPLETED
    doubt.refresh_from_db()
    why = "The call itself returned its result late, so no person needs to settle it."
    assert (doubt.status, doubt.decided_by, doubt.reason) == ("cancelled", None, why)
    assert AuditEntry.objects.get(subject=f"request {doubt.id}", act="cancelled").actor is None
    of_doubt, of_run = pages(bea, doubt)
    has(of_doubt, "Resolved by the call itself")
    has(of_run, "settled by its late outcome: done")
    for page in (of_doubt, of_run):
        has(page, "Late: <bdi>send_welcome_mail</bdi> returned its result", "m-1")
        has(page, "It settled the call in doubt, and the agent was told the outcome.")
    told = "late outcome of <bdi>send_welcome_mail</bdi>"
    shows(bea, f"/runs/{doubt.run_id}/?tab=transcript", told)


SAME, ELSE = "had reported the same.", "had reported something else, and the agent was told that."
GAVE_UP = "had given the call up, and the agent was told that it failed."


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ('{"message_id": "m-1", "at": 2}', "", SAME),
        ('{"message_id": "m-2"}', "", ELSE),
        ('{"message_id": "m-1"}', "<no>", ELSE),
        (None, "<no>", SAME),
        (None, "", GAVE_UP),
    ],
)
def test_a_late_outcome_is_compared_with_a_persons_report(
    bea: Client, office: Office, doubt: Request, said: str | None, error: str, words: str
) -> None:
    if said is None:
        send(bea, doubt, "settle/give-up", reason="No.")
    else:
        send(bea, doubt, "settle/happened", result=said)
    office.advance(doubt.run_id)
    arrives(doubt.run_id, error=error, result={"at": 2, "message_id": "m-1"})
    office.advance(doubt.run_id)
    contradicts = "This contradicts the earlier decision: <b><bdi>bea"
    for page in pages(bea, doubt):
        has(page, f"</b> {words}", hides=["<no>"])
        assert (contradicts in page) is (words != SAME)
    (late,) = bea.get(f"/api/v1/runs/{doubt.run_id}/late-outcomes").json()
    assert (late["decided_by"], late["contradicts"]) == ("bea", words != SAME)
    assert late["note"] == f"bea {words}"


def test_a_late_outcome_of_an_ended_run_is_shown(
    bea: Client, office: Office, doubt: Request
) -> None:
    office.cancel(doubt.run_id, "Enough.")
    arrives(doubt.run_id)
    for page in pages(bea, doubt):
        has(page, "The call was closed before it arrived, so the agent was not told.")


def test_the_api_reports_late_outcomes_like_the_pages(
    bea_api: Caller, office: Office, doubt: Request
) -> None:
    """The run, and the request about the call in doubt; other requests have none."""
    run = doubt.run_id

    def read() -> list[dict[str, object]]:
        found: list[dict[str, object]] = bea_api.get(f"/runs/{run}/late-outcomes").json()
        assert bea_api.get(f"/approvals/{doubt.id}").json()["late_outcomes"] == found
        return found

    assert read() == []
    gate = Gate.objects.get(run=run, kind="in_doubt")
    arrives(run, error="<no>")
    (late,) = read()
    assert late.pop("at")
    assert str(late.pop("note")).startswith("A worker applies it next")
    assert late == {
        "frame": gate.frame,
        "call": gate.call,
        "tool": "send_welcome_mail",
        "attempt": 1,
        "outcome": "failed",
        "result": None,
        "error": "<no>",
        "decided_by": None,
        "contradicts": False,
    }
    assert bea_api.get(f"/approvals/{office.request(run).id}").json()["late_outcomes"] == []
