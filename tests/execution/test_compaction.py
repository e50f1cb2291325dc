"""Compaction on real Postgres: summaries by model or author, the pinned base, and crashes around both."""

import json
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from runtime.control import verification
from runtime.core.call_options import CompactionOptions
from runtime.core.continuation import Continuation as State
from runtime.core.documents.codec import decode_continuation
from runtime.core.enums import EffectClass
from runtime.core.limits import MAX_SUMMARY
from runtime.models import CompactionBase, Continuation
from runtime.ports.agents import AgentInfo
from runtime.ports.effects import (
    ModelAnswer,
    ModelRequest,
    Outcome,
    ToolResult,
)
from runtime.queries.transcript.transcript import read_transcript
from runtime.store import pool
from runtime.store.tables import continuations
from tests.support.engine import MakeBench, Rig, types
from tests.support.fake_ports import FakeEffects, FakeTool, Script, ask, say

TURNS = 6
READS = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value="x" * 500))
GATED = FakeTool(gated=True)


class Compacting(FakeEffects):
    """An agent whose frames are compacted; it records the messages of each summary request."""

    terms = CompactionOptions(messages=5)

    def agent(self, name: str) -> AgentInfo:
        return replace(super().agent(name), compaction=self.terms)

    @property
    def summaries(self) -> list[ModelRequest]:
        return [request for request in self.models if request.summary]


def plays(tool: str, turns: int = TURNS, summary: str = "so far") -> Script:
    """Calls the tool that often, by the number of calls the messages tell of."""

    def reply(request: ModelRequest) -> Outcome:
        if request.summary:
            return ModelAnswer(reply=None, text=summary, usage={"input_tokens": 3})
        last = [m for m in request.messages if m["role"] == "model"][-1:]
        done = int(last[0]["calls"][0][1:].split(".")[0]) if last else 0
        return ask((tool, {"n": done + 1})) if done < turns else say("done")

    return reply


@pytest.fixture
def desk(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr("tests.support.engine.FakeEffects", Compacting)
    return rig({"a": plays("read"), "g": plays("gated")}, read=READS, gated=GATED)


def test_a_long_run_hears_a_summary_and_its_last_turns(desk: Rig) -> None:
    run = desk.advance(desk.start("a"))
    assert (run.status, types(run.id).count("Compacted")) == ("completed", 4)
    assert [call.args["n"] for call in desk.effects.calls] == [1, 2, 3, 4, 5, 6]
    last = desk.effects.models[-1]
    assert [message["role"] for message in last.messages[:2]] == ["input", "summary"]
    assert last.messages[1]["content"] == "so far"
    assert max(len(one.messages) for one in desk.effects.models) <= 7
    told = [m.value for m in read_transcript(run.id).all_messages() if m.kind == "summary"]
    assert told == ["so far"] * 4
    first = desk.effects.summaries[0]  # type: ignore[attr-defined]
    assert [message["role"] for message in first.messages] == [
        "input", "model", "results", "model", "results",
    ]  # fmt: skip


def test_compaction_writes_the_base_continuation(desk: Rig, continued: None) -> None:
    run = desk.advance(desk.start("g"))
    for _ in range(4):
        run = desk.answer(run.id)
    base, later = CompactionBase.objects.get(run=run), Continuation.objects.get(run=run)
    assert 0 < base.position < later.position == run.position
    for kept in (base, later):
        assert "told" not in json.loads(kept.body), "it needs no entry that may be removed"
        assert decode_continuation(kept.body).position == kept.position
    with pool.pooled() as connection:
        state = continuations.load_base(connection, run.id)
    assert isinstance(state, State)
    assert state.frame("0").messages[1]["role"] == "summary"
    assert verification.verify(run.id).is_consistent


def test_a_worker_that_dies_while_summing_up_repeats_no_call(desk: Rig) -> None:
    """The worker loses its lease in the middle; another one requests only the summary again."""
    model = desk.effects.agents["a"]
    robbed: list[UUID] = []

    def reply(request: ModelRequest) -> Outcome:
        if request.summary and not robbed:
            robbed.append(request.run)
            with pool.own() as own:
                own.execute("UPDATE runtime_run SET epoch = epoch + 1, owner = %s", (uuid4(),))
        return model(request)

    desk.effects.agents["a"] = reply
    run = desk.start("a")
    desk.advance(run)
    before = types(run)
    assert "Compacted" not in before
    with pool.own() as own:
        own.execute("UPDATE runtime_run SET owner = NULL, lease_until = NULL, due_at = now()")
    assert desk.advance(run).status == "completed"
    assert types(run)[: len(before)] == before
    assert [call.args["n"] for call in desk.effects.calls] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", [" ", "x" * (MAX_SUMMARY + 1)])
def test_a_summary_that_is_none_fails_the_frame_and_says_why(desk: Rig, text: str) -> None:
    desk.effects.agents["a"] = plays("read", summary=text)
    run = desk.advance(desk.start("a"))
    assert run.status == "failed"
    assert f"the summary has {len(text)} characters" in (run.reason or "")
