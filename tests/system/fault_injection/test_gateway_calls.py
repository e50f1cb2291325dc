"""kill -9 of the web and of the worker of a call through an MCP gateway: the upstream server is called once at most."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from approvals.decisions import gateway_calls
from approvals.decisions.decide import resolve
from approvals.models import Approval, AuditEntry
from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from runtime import broker
from runtime.control.verification import verify
from runtime.core.values.enums import GateKind
from runtime.models import Run
from runtime.ports.access import Actor
from tests.agents.tools.test_mcp import accept
from tests.support.engine import lose
from tests.support.gateway_desk import TEA, Desk, gateway
from tests.support.mcp_server import Tickets, served, tickets
from tests.support.seeds import Cast, decide
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "forks")]
BEA = Actor(person="bea")


@pytest.fixture
def upstream() -> Iterator[Tickets]:
    with served(tickets()) as system:
        yield system


@pytest.fixture
def accepted(upstream: Tickets, tmp_path: Path) -> Path:
    return accept(upstream, tmp_path / "tickets.json")


@pytest.fixture
def desk(upstream: Tickets, accepted: Path) -> Iterator[Desk]:
    worker = Desk(gateway(upstream.url, accepted))
    yield worker
    worker.close()


@pytest.fixture
def ada(cast: Cast) -> Actor:
    token, _ = tokens.create(cast.ada, ALL_SCOPES)
    return Actor(person="ada", token=str(token.public_id))


def ask(actor: Actor) -> UUID:
    """Ask for the call, as the web does for each message that the client sends again."""
    return gateway_calls.ask(gateway="tickets", tool="Create-Ticket", arguments=TEA, actor=actor)


def advance(url: str, accepted: str, run: UUID) -> None:
    """Make the approved call, as another worker does."""
    Desk(gateway(url, Path(accepted))).advance(run)


def collect(actor: Actor, run: UUID) -> None:
    """Note that the client has the result, as the web does when it was sent."""
    gateway_calls.collect(gateway="tickets", run=run, actor=actor)


@pytest.mark.parametrize("point", points.of_gateways(gateway_calls.COLLECT))
def test_a_result_whose_web_process_was_killed_is_given_again_or_was_given(
    point: str, desk: Desk, ada: Actor, upstream: Tickets, tmp_path: Path
) -> None:
    run = ask(ada)
    desk.decide(desk.ask_people())
    die_at(point, tmp_path, collect, ada, run)
    is_collected = point.startswith("committed")
    assert (ask(ada) != run) is is_collected
    call = gateway_calls.read(gateway="tickets", run=run, actor=ada)
    assert gateway_calls.find_answer(call) is not None
    assert len(upstream.calls) == 1
    collect(ada, run)
    assert AuditEntry.objects.filter(run=run, act=gateway_calls.COLLECTED).count() == 1
    assert verify(run).is_consistent


@pytest.mark.parametrize("point", points.of_gateways(gateway_calls.ASK))
def test_a_call_whose_web_process_was_killed_is_found_by_the_same_call(
    point: str, desk: Desk, ada: Actor, upstream: Tickets, tmp_path: Path
) -> None:
    die_at(point, tmp_path, ask, ada)
    assert Run.objects.count() == point.startswith("committed")
    run = ask(ada)
    desk.decide(desk.ask_people())
    assert ask(ada) == run
    assert (Run.objects.count(), len(upstream.calls)) == (1, 1)


@pytest.mark.parametrize(
    ("point", "calls"),
    [
        ("written:ToolStarted:0", 0),
        ("starting:write:0", 0),
        ("performed:write:0", 1),
        ("before:ToolReturned:0", 1),
        ("committed:ToolReturned:0", 1),
    ],
)
def test_a_killed_worker_calls_the_upstream_server_once_at_most(
    point: str,
    calls: int,
    desk: Desk,
    ada: Actor,
    upstream: Tickets,
    accepted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker, "send_all", lambda hints: None)
    run = ask(ada)
    decide(desk.ask_people(), BEA)
    die_at(point, tmp_path, advance, upstream.url, str(accepted), run)
    assert len(upstream.calls) == calls
    lose(run)
    status = desk.advance(run)
    doubt = Approval.objects.filter(run=run, kind=GateKind.IN_DOUBT).first()
    if doubt is not None:
        happened = (
            {"outcome": "happened", "result": "made Tea"} if calls else {"outcome": "give_up"}
        )
        resolve(run=run, gate=doubt.gate, reason="as the tickets say", actor=BEA, **happened)
        status = desk.advance(run)
    call = gateway_calls.read(gateway="tickets", run=ask(ada), actor=ada)
    assert (status, call.status, call.id) == ("completed", "completed", run)
    answer = gateway_calls.find_answer(call)
    assert answer is not None
    assert answer["result"] == ("made Tea" if len(upstream.calls) else None)
    assert len(upstream.calls) <= 1
    assert verify(run).is_consistent
