"""Large results in the object store: written before the step, verified when read, and never lost."""

from collections.abc import Callable
from uuid import UUID

import pytest
from django.db.models import Q

from runtime.control import verification
from runtime.models import Run, StoredBlob
from runtime.ports.effects import ToolResult
from runtime.reads.run_rows import run_detail
from tests.support.engine import LONG, MakeBench, Rig, cancel, later, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.object_stores import BOTH, LARGE, Breakable
from tests.support.people import until
from tests.support.threads import in_thread

pytestmark = pytest.mark.usefixtures("object_store")


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    """An agent that reads a large result, asks for a call that a person must approve, and answers."""
    return rig(
        {"a": turns(ask(("read", {})), ask(("pay", {})), say("done"))},
        read=FakeTool(body=lambda _: ToolResult(value=LARGE)),
        pay=FakeTool(gated=True),
    )


def waiting(desk: Rig) -> Run:
    run = desk.advance(desk.start("a"))
    assert run.status == "suspended"
    return run


def status_text(run: UUID) -> str | None:
    found = run_detail(Q(), run)
    assert found is not None
    return found.status_text


def problems(run: UUID) -> list[str]:
    return [one.problem for one in verification.verify(run).findings]


@BOTH
def test_a_large_result_is_in_the_store_alone_and_its_model_reads_it(
    desk: Rig, object_store: Breakable
) -> None:
    run = waiting(desk)
    row = StoredBlob.objects.get()
    assert (row.body, row.size, [row.place]) == ("", len(LARGE) + 2, object_store.keys())
    assert object_store.get(str(row.place)) == f'"{LARGE}"'.encode()
    assert desk.effects.models[-1].messages[-1]["results"][0]["content"] == LARGE
    assert problems(run.id) == []
    assert desk.answer(run.id).status == "completed"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda store, key: store.put(key, b'"another"'), "does not match the digest"),
        (lambda store, key: store.put(key, b"\xff"), "does not match the digest"),
        (lambda store, key: store.delete(key), "is missing"),
    ],
    ids=["altered", "no text", "missing"],
)
@BOTH
def test_an_altered_object_is_named_and_no_model_gets_it(
    desk: Rig, object_store: Breakable, change: Callable[[Breakable, str], None], said: str
) -> None:
    run = waiting(desk)
    (key,) = object_store.keys()
    change(object_store, key)
    (problem,) = problems(run.id)
    assert said in problem
    assert key in problem
    asked = len(desk.effects.models)
    found = desk.answer(run.id)
    assert (found.status, len(desk.effects.models)) == ("quarantined", asked)
    assert key in (found.reason or "")


@pytest.mark.parametrize("ends", [False, True], ids=["until it is back", "but not at the end"])
def test_a_store_that_is_down_makes_the_step_wait_with_its_outcome(
    desk: Rig, object_store: Breakable, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    run = desk.start("a")
    object_store.is_down = True
    with caplog.at_level("WARNING", "runtime.execution.commit"):
        worker = in_thread(lambda: desk.advance_once(run))
        until(lambda: "does not answer" in caplog.text or None, "the step to wait")
    assert "ToolReturned" not in types(run)
    until(lambda: "does not answer" in (status_text(run) or "") or None, "the wait to be shown")
    if ends:
        desk.heartbeat.drain(LONG)
        worker.join()
        assert StoredBlob.objects.get().body == f'"{LARGE}"', "it is in Postgres instead"
    object_store.is_down = False
    worker.join()
    assert (types(run).count("ToolReturned"), status_text(run)) == (1, None)
    assert [call.tool for call in desk.effects.calls] == ["read"]
    assert problems(run) == []


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_cannot_read_its_result_is_due_again_and_can_be_cancelled(
    desk: Rig, object_store: Breakable, cancelled: bool
) -> None:
    run = waiting(desk).id
    object_store.is_down = True
    found = desk.answer(run)
    assert (found.owner, found.due_at is None, found.ended_at) == (None, False, None)
    assert status_text(run) == "waits for the object store: the object store does not answer"
    assert problems(run) == ["the object store does not answer"]
    asked = len(desk.effects.models)
    if cancelled:
        cancel(run)
    else:
        object_store.is_down = False
    later(run)
    assert desk.advance(run).status == ("cancelled" if cancelled else "completed")
    assert len(desk.effects.models) == asked + (not cancelled)
    assert [call.tool for call in desk.effects.calls] == ["read", "pay"]
    assert status_text(run) is None
