"""Late outcomes on the page of the call in doubt and on the page of its run."""

from contextlib import suppress
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from django.test import Client

from approvals.models import AuditEntry
from runtime.core.continuation import RunStatus
from runtime.errors import RunEnded
from runtime.models import Gate
from runtime.ports.effects import Unknown
from runtime.store import pool, runs
from runtime.store.tables import late_outcomes
from tests.support.api_client import Caller
from tests.support.engine import events
from tests.support.fake_ports import FakeTool
from tests.support.office import MAIL_RESULT, Office


@pytest.fixture
def doubt(office: Office) -> UUID:
    """Ada's run, whose welcome mail is in doubt."""
    return office.in_doubt()


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


def pages(client: Client, office: Office, run: UUID) -> list[str]:
    """Return the page of the call in doubt and the page of the run."""
    paths = (f"/a/{office.in_doubt_request(run).id}/", f"/runs/{run}/")
    return [client.get(path).content.decode() for path in paths]


def test_a_doubt_that_a_late_outcome_settled(bea: Client, office: Office, doubt: UUID) -> None:
    arrives(doubt)
    for page in pages(bea, office, doubt):
        assert "A worker applies it next, unless a person settles the call first." in page
    assert office.advance(doubt).status == RunStatus.COMPLETED
    request = office.in_doubt_request(doubt)
    assert (request.status, request.decided_by) == ("cancelled", None)
    assert request.reason == (
        "The call itself returned its result late, so no person needs to settle it."
    )
    assert AuditEntry.objects.get(subject=f"request {request.id}", act="cancelled").actor is None
    of_doubt, of_run = pages(bea, office, doubt)
    assert "Resolved by the call itself" in of_doubt
    for page in (of_doubt, of_run):
        assert "Late: <bdi>send_welcome_mail</bdi> returned its result" in page
        assert "It settled the call in doubt, and the agent was told the outcome." in page
        assert "m-1" in page
    assert "settled by its late outcome: done" in of_run
    transcript = bea.get(f"/runs/{doubt}/?tab=transcript").content.decode()
    assert "late outcome of <bdi>send_welcome_mail</bdi>" in transcript


def test_decided_today_shows_a_late_outcome(bea: Client, office: Office) -> None:
    lost = FakeTool(gated=True, body=lambda request: Unknown(error="cut off"))
    office.effects.tools["set_privileges"] = lost
    office.approve(run := office.start())
    arrives(run)
    office.advance(run)
    assert "Done, late" in bea.get("/inbox/?view=decided").content.decode()


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ({"message_id": "m-1"}, "", "</b> had reported the same."),
        (
            {"message_id": "m-2"},
            "",
            "</b> had reported something else, and the agent was told that.",
        ),
        ({"message_id": "m-1"}, "<no>", "</b> had reported something else, and the agent"),
        (None, "<no>", "</b> had reported the same."),
        (None, "", "</b> had given the call up, and the agent was told that it failed."),
    ],
)
def test_a_late_outcome_is_compared_with_a_persons_report(
    bea: Client, office: Office, doubt: UUID, said: object, error: str, words: str
) -> None:
    way = "give-up" if said is None else "happened"
    form = {"reason": "No."} if said is None else {"result": str(said).replace("'", '"')}
    bea.post(f"/a/{office.in_doubt_request(doubt).id}/settle/{way}/", form)
    office.advance(doubt)
    arrives(doubt, error=error)
    office.advance(doubt)
    for page in pages(bea, office, doubt):
        assert words in page
        assert ("This contradicts the earlier decision: <b><bdi>bea" in page) is (
            "same" not in words
        )
        assert "<no>" not in page


def test_the_order_of_keys_is_no_contradiction(bea: Client, office: Office, doubt: UUID) -> None:
    form = {"result": '{"message_id": "m-1", "at": 2}'}
    bea.post(f"/a/{office.in_doubt_request(doubt).id}/settle/happened/", form)
    office.advance(doubt)
    arrives(doubt, result={"at": 2, "message_id": "m-1"})
    for page in pages(bea, office, doubt):
        assert "</b> had reported the same." in page


def test_a_late_outcome_of_an_ended_run_is_shown(bea: Client, office: Office, doubt: UUID) -> None:
    office.cancel(doubt, "Enough.")
    arrives(doubt)
    for page in pages(bea, office, doubt):
        assert "The call was closed before it arrived, so the agent was not told." in page


def test_the_api_reports_late_outcomes_like_the_pages(
    bea: Client, bea_api: Caller, office: Office, doubt: UUID
) -> None:
    """The run, and the request about the call in doubt; other requests have none."""

    def read() -> list[dict[str, object]]:
        found: list[dict[str, object]] = bea_api.get(f"/runs/{doubt}/late-outcomes").json()
        shown = bea_api.get(f"/approvals/{office.in_doubt_request(doubt).id}").json()
        assert shown["late_outcomes"] == found
        return found

    assert read() == []
    form = {"result": '{"message_id": "m-2"}'}
    bea.post(f"/a/{office.in_doubt_request(doubt).id}/settle/happened/", form)
    office.advance(doubt)
    gate = Gate.objects.get(run=doubt, kind="in_doubt")
    arrives(doubt)
    (late,) = read()
    assert late.pop("at")
    assert late == {
        "frame": gate.frame,
        "call": gate.call,
        "tool": "send_welcome_mail",
        "attempt": 1,
        "outcome": "returned",
        "result": MAIL_RESULT,
        "error": None,
        "decided_by": "bea",
        "contradicts": True,
        "note": "bea had reported something else, and the agent was told that.",
    }
    assert bea_api.get(f"/approvals/{office.request(doubt).id}").json()["late_outcomes"] == []


def test_the_api_says_that_a_call_failed_late(ada_api: Caller, office: Office, doubt: UUID) -> None:
    arrives(doubt, error="<no>")
    (late,) = ada_api.get(f"/runs/{doubt}/late-outcomes").json()
    assert (late["outcome"], late["result"], late["error"]) == ("failed", None, "<no>")
    assert (late["decided_by"], late["contradicts"]) == (None, False)
    assert late["note"].startswith("A worker applies it next")
