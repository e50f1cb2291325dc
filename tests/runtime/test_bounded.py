"""How many bytes a run costs: those of its journal and continuation, and those written on the way."""

from uuid import UUID

import pytest

from runtime import continuations, queries
from runtime.core.continuation import Continuation as State
from runtime.core.decisions import Verdict
from runtime.models import Continuation, JournalEntry, Run
from runtime.ports import ToolResult
from tests.fakes.ports import FakeTool, ask, say, turns
from tests.runtime.conftest import MakeBench, Rig

GATES = 50
TEXT = "x" * 2_000
PAYLOAD = GATES * 2 * len(TEXT)  # what each call is given and what it gives back


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each continuation that is written."""
    sizes: list[int] = []
    real = continuations.parameters

    def counted(continuation: State | None) -> dict[str, object]:
        parameters = real(continuation)
        if continuation is not None:
            sizes.append(len(str(parameters["c_body"])))
        return parameters

    monkeypatch.setattr(continuations, "parameters", counted)
    return sizes


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    calls = [ask(("t", {"text": TEXT, "n": n})) for n in range(GATES)]
    tool = FakeTool(gated=True, body=lambda request: ToolResult(value=TEXT))
    return rig({"a": turns(*calls, say("done"))}, t=tool)


def passed(desk: Rig, gates: int) -> Run:
    run = desk.advance(desk.start("a"))
    for _ in range(gates):
        desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
        run = desk.advance(run.id)
    return run


def journal(run: UUID) -> int:
    bodies = JournalEntry.objects.filter(run_id=run).values_list("body", flat=True)
    return sum(len(body) for body in bodies)


def test_a_run_with_fifty_gates_keeps_at_most_five_times_its_payload(
    desk: Rig, written: list[int]
) -> None:
    run = passed(desk, GATES - 1)
    kept = journal(run.id) + len(Continuation.objects.get(run=run).body)
    assert run.status == "suspended"
    assert kept <= 5 * PAYLOAD
    assert journal(run.id) + sum(written) <= 11 * PAYLOAD  # each time anew would be 54 times


def test_a_big_continuation_stays_live_with_its_tail(desk: Rig, written: list[int]) -> None:
    run = passed(desk, 24)
    if run.base == run.position:  # just written anew: the next one is the first of a tail
        desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
        run = desk.advance(run.id)
    kept = Continuation.objects.get(run=run)
    assert run.base == kept.position < run.position
    assert len(kept.body) == written[-1] > continuations.LARGE
    shown = queries.continuation(run.id) or {}
    assert (shown["position"], shown["head"]) == (run.position, run.head)
    assert [str(gate.id) for gate in desk.open_gates(run.id)] == [
        pending["gate"] for pending in shown["pending"]
    ]


def test_an_edited_entry_of_the_tail_parks_the_run(desk: Rig) -> None:
    run = passed(desk, 25)
    JournalEntry.objects.filter(run_id=run.id, position=run.position).update(body="{}")
    desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    assert desk.advance(run.id).status == "quarantined"


@pytest.mark.parametrize(
    ("size", "tail", "stays"),
    [(65_536, 0, False), (65_537, 16_384, True), (65_540, 16_385, False), (0, 0, False)],
)
def test_only_a_big_one_with_a_tail_under_a_quarter_of_it_stays(
    size: int, tail: int, stays: bool
) -> None:
    assert continuations.stays(size, tail) is stays
