"""The client against the served application: runs, requests, errors, and answers that are lost."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from runtime.models import Run
from signoff_client import (
    AsyncSignoff,
    DecidedBefore,
    InvalidField,
    NoAnswer,
    NotAuthenticated,
    NotInTime,
    NotPermitted,
    NotThere,
    RunNotCompleted,
    Signoff,
    client,
)
from tests.client.conftest import token_of
from tests.support.office import NEWCOMER, Office
from tests.support.seeds import Cast

AGENT = "hr_onboarding"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(client, "_PAUSE_SECONDS", (0.001, 0.001))


class Lossy(httpx2.HTTPTransport):
    """Loses the answers of the first requests of this method, after the server has done the acts."""

    def __init__(self, method: str, losses: int = 1) -> None:
        super().__init__()
        self.method, self.losses = method, losses

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = super().handle_request(request)
        if request.method == self.method and self.losses:
            self.losses -= 1
            response.read()
            raise httpx2.ReadError("lost", request=request)
        return response


def test_a_run_is_started_decided_and_its_typed_result_read(
    ada: Signoff, bea: Signoff, office: Office
) -> None:
    run = ada.start(AGENT, NEWCOMER, business_key="newhire")
    assert ada.start(AGENT, NEWCOMER, business_key="newhire").id == run.id
    office.advance(run.id)
    with pytest.raises(NotInTime, match="suspended"):
        ada.wait(run.id, seconds=0)
    with pytest.raises(RunNotCompleted, match="suspended"):
        ada.read_run(run.id).result(str)
    (approval,) = bea.list_approvals().items
    assert (approval.run, approval.args["username"]) == (run.id, "newhire")
    assert ada.read_run(run.id).gates[0].approval == approval.id
    with pytest.raises(NotPermitted) as refused:
        ada.decide(approval, "approve")
    assert refused.value.code == "requester"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ada.wait, run.id)
        assert bea.decide(approval, "approve", reason="Agreed.").decided_by == "bea"
        office.advance(run.id)
        assert waiting.result().result(str) == "New Hire is on board."
    assert bea.read_approval(approval.id).reason == "Agreed."
    assert [item.id for item in ada.list_runs(limit=1).items] == [run.id]


def test_a_denied_run_and_its_journal(ada: Signoff, bea: Signoff, office: Office) -> None:
    run = office.start()
    (approval,) = bea.list_approvals().items
    with pytest.raises(InvalidField) as refused:
        bea.decide(approval, "deny")
    assert refused.value.field == "reason"
    with ThreadPoolExecutor() as pool:
        tail = pool.submit(lambda: list(ada.tail(run)))
        bea.decide(approval, "deny", reason="No.")
        office.advance(run)
        entries = tail.result()
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) == Run.objects.get(id=run).position


def test_the_asynchronous_form_does_the_same(
    served: str, cast: Cast, ada: Signoff, office: Office
) -> None:
    token = token_of(cast.bea)
    run = office.start()

    async def decide() -> tuple[int, str | None]:
        async with AsyncSignoff(served, token) as signoff:
            (approval,) = (await signoff.list_approvals()).items
            decided = await signoff.decide(approval, "approve")
            with pytest.raises(NotInTime):
                await signoff.wait(run, seconds=0)
            return len((await signoff.read_run(run)).gates), decided.decided_by

    assert asyncio.run(decide()) == (1, "bea")
    office.advance(run)

    async def follow() -> list[int]:
        async with AsyncSignoff(served, token) as signoff:
            assert (await signoff.wait(run)).result(str)
            return [entry.position async for entry in signoff.tail(run, after=2)]

    assert asyncio.run(follow())[0] == 3


def test_errors_name_the_field_and_the_reviewer(
    ada: Signoff, bea: Signoff, served: str, office: Office
) -> None:
    with pytest.raises(InvalidField, match=r"^input\.") as invalid:
        ada.start(AGENT, {**NEWCOMER, "security_level": "high"})
    assert invalid.value.field == "input.security_level"
    with pytest.raises(NotThere):
        ada.read_run(uuid4())
    with pytest.raises(NotAuthenticated), Signoff(served, "wrong") as stranger:
        stranger.list_runs()
    office.start()
    (approval,) = bea.list_approvals().items
    bea.decide(approval, "approve")
    assert bea.decide(approval, "approve").decided_by == "bea"  # as before
    with pytest.raises(DecidedBefore) as decided:
        bea.decide(approval, "deny", reason="No.")
    assert decided.value.decided_by == "bea"


def test_a_lost_answer_starts_no_second_run(served: str, cast: Cast) -> None:
    http = httpx2.Client(transport=Lossy("POST", losses=3))
    with Signoff(served, token_of(cast.ada), http=http) as signoff:
        run = signoff.start(AGENT, NEWCOMER)
    assert [row.id for row in Run.objects.all()] == [run.id]


def test_a_decision_with_a_lost_answer_is_not_sent_again(
    served: str, cast: Cast, bea: Signoff, office: Office
) -> None:
    office.start()
    (approval,) = bea.list_approvals().items
    http = httpx2.Client(transport=Lossy("POST"))
    with Signoff(served, token_of(cast.bea), http=http) as signoff, pytest.raises(NoAnswer):
        signoff.decide(approval, "approve")
    assert bea.read_approval(approval.id).status == "approved"


def _stand_in(answers: list[httpx2.Response]) -> httpx2.Client:
    """A server that answers so, one after the other."""
    return httpx2.Client(transport=httpx2.MockTransport(lambda request: answers.pop(0)))


def test_a_busy_server_is_asked_again_unless_it_wants_too_much_time(
    bea: Signoff, office: Office
) -> None:
    office.start()
    (approval,) = bea.list_approvals().items
    decided = httpx2.Response(200, content=approval.model_dump_json())
    busy = [httpx2.Response(503, headers={"Retry-After": "0"}), httpx2.Response(429), decided]
    signoff = Signoff("http://localhost", "token", http=_stand_in(busy))
    assert signoff.decide(approval, "approve").id == approval.id
    late = [httpx2.Response(503, headers={"Retry-After": "3600"})]
    with pytest.raises(NoAnswer, match="503"):
        Signoff("http://localhost", "token", http=_stand_in(late)).read_run(uuid4())
    proxy = [httpx2.Response(502), httpx2.Response(200, text="<html>")]
    with pytest.raises(NoAnswer, match="not one of Signoff"):
        Signoff("http://localhost", "token", http=_stand_in(proxy)).read_run(uuid4())
    lost = Signoff("http://localhost", "token", http=_stand_in([httpx2.Response(502)]))
    with pytest.raises(NoAnswer, match="502"):
        lost.decide(approval, "approve")


def test_no_token_is_printed_or_sent_where_others_could_read_it(
    served: str, cast: Cast, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = token_of(cast.ada)
    with Signoff(served, token) as signoff:
        signoff.list_runs()
        with pytest.raises(NotThere) as missing:
            signoff.read_run(uuid4())
    assert repr(signoff) == f"Signoff({served!r})"
    assert token not in repr(missing.value.__dict__) + str(missing.value) + caplog.text
    for url in ("http://signoff.example.com", "https://ada:secret@example.com", "signoff"):
        with pytest.raises(ValueError, match="address of Signoff"):
            Signoff(url, token)
    with pytest.raises(ValueError, match="token") as refused:
        Signoff(served, f"{token}\n")
    assert token not in str(refused.value)


def test_an_exported_run_is_a_file(served: str, cast: Cast, office: Office) -> None:
    run: UUID = office.start()
    with Signoff(served, token_of(cast.admin)) as signoff:
        content: Any = signoff.export(run)
        assert signoff.export(run) == content
    assert Run.objects.get(id=run).status == "exported"
