"""Replies of scripts: they join the step that asks for them, unless an outcome in it must be written first."""

from collections import Counter
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.utils import timezone

from runtime.control.interventions import send_message
from runtime.core.documents.codec import decode_entry
from runtime.core.values.enums import EFFECT_CLASSES, EffectClass, Verdict
from runtime.core.values.limits import KEPT_INLINE
from runtime.errors import LeaseLost
from runtime.execution import runner
from runtime.models import JournalEntry, Run
from runtime.ports.effects import ModelRequest, Outcome, ToolResult
from runtime.store import failpoints, steps
from tests.support.calls import around
from tests.support.engine import ADA, MakeBench, Rig, bodies, types
from tests.support.fake_ports import FakeTool, Script, ask, say, turns
from tests.support.threads import aside

CALLS = ask(("t", {"n": 1})), ask(("t", {"n": 2}))
SCRIPT = turns(*CALLS, say("done"))


def entries(run: UUID) -> list[list[str]]:
    """The types of the events, by entry."""
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    return [[event.type for event in decode_entry(body).events] for body in bodies(rows)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No script is slow here, however busy the machine is."""
    monkeypatch.setattr(runner, "SLOW_REPLY", 60.0)


def make_desk(rig: MakeBench, effect: EffectClass, script: Script = SCRIPT, **given: Any) -> Rig:
    desk = rig({"a": script}, t=FakeTool(effect=effect, **given))
    desk.effects.code.add("a")
    return desk


@pytest.mark.parametrize("effect", EffectClass)
def test_a_reply_joins_each_outcome_that_could_be_had_again(
    rig: MakeBench, effect: EffectClass
) -> None:
    desk = make_desk(rig, effect)
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    first, *middle, last = entries(run.id)[1:]
    reply = ["ModelReplied", "CallAdmitted", "ToolStarted"]
    assert first == ["FrameOpened", *reply]
    alone = effect in (EffectClass.WRITE, EffectClass.TRANSACTIONAL)  # which have an own commit
    assert middle == (
        [["ToolReturned"], reply, ["ToolReturned"]] if alone else [["ToolReturned", *reply]]
    )
    assert last == ["ToolReturned"] * (not alone) + ["ModelReplied", "Completed"]


def test_a_reply_that_was_paid_for_is_written_before_code_is_asked(rig: MakeBench) -> None:
    scripts = {"a": turns(ask(("b", {})), say("done")), "b": turns(CALLS[0], say("paid"))}
    for code, ended in (({"a"}, "FrameClosed"), ({"a", "b"}, "Completed")):
        desk = rig(scripts, t=FakeTool(effect=EffectClass.READ))
        desk.effects.code |= code
        run = desk.advance(desk.start("a"))
        assert run.status == "completed"
        (child,) = [kinds for kinds in entries(run.id) if "FrameClosed" in kinds]
        assert child[-1] == ended


def test_a_model_is_called_only_after_what_it_reads_is_written(rig: MakeBench) -> None:
    written: list[bool] = []

    def reply(request: ModelRequest) -> Outcome:
        told = sum(message["role"] != "model" for message in request.messages)
        kinds = types(request.run)
        connections.close_all()  # of this thread
        written.append(kinds.count("ToolReturned") == told - 1 and "FrameOpened" in kinds)
        return SCRIPT(request)

    desk = rig({"a": reply}, t=FakeTool(effect=EffectClass.READ))
    assert desk.advance(desk.start("a")).status == "completed"
    assert written == [True] * 3


@pytest.mark.parametrize("why", ["slow", "suspected", "large"])
def test_some_outcomes_do_not_wait_for_code(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    size = KEPT_INLINE + 1 if why == "large" else 1
    desk = make_desk(rig, EffectClass.READ, body=lambda _: ToolResult(value="x" * size))
    run = desk.start("a")
    if why == "slow":
        monkeypatch.setattr(runner, "SLOW_REPLY", -1.0)
    if why == "suspected":
        Run.objects.filter(id=run).update(losses=1)
    assert desk.advance(run).status == "completed"
    assert ["ToolReturned"] in entries(run)


def test_a_reply_that_a_message_overtakes_is_made_again_and_hears_it(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message comes while the reply that would end the run is there, but not written yet."""
    desk = make_desk(rig, EffectClass.READ)
    desk.effects.agents["a"] = lambda request: say(
        " ".join(message["content"] for message in request.messages if message["role"] == "message")
        or "nothing"
    )
    run, sent = desk.start("a"), count()

    def send(*_: object, **__: object) -> None:
        if not next(sent):
            aside(lambda: send_message(run=run, actor=ADA, text="Wait!"))

    around(monkeypatch, steps, "commit", before=send)
    assert desk.advance(run).output == '"Wait!"'
    assert len(desk.effects.models) == 2


# Deaths at every point of the runner's thread


class Ledger:
    """The calls that tools received, and the points that the runner passed; it dies at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begin(None)
        monkeypatch.setattr(failpoints, "hit", self._hit)

    def begin(self, dies_at: int | None) -> None:
        """Count from here on."""
        self.calls = Counter[str]()
        self.passed = 0
        self.dies_at = dies_at

    def perform(self, request: Any) -> Outcome:
        self.calls[f"{request.tool} {request.args['n']}"] += 1
        return ToolResult(value=request.args["n"])

    def _hit(self, moment: str, kind: str, depth: int) -> None:
        if kind in (*EFFECT_CLASSES, "model"):
            return  # processes die there: see test_kill_points.py
        self.passed += 1
        if self.passed == self.dies_at:
            raise LeaseLost  # the worker writes nothing more


def mixed(rig: MakeBench, ledger: Ledger) -> Rig:
    """A parent and a child, both of code, with calls of three classes."""
    tools = {
        effect.value: FakeTool(effect=effect, gated=effect is EffectClass.READ, body=ledger.perform)
        for effect in (EffectClass.READ, EffectClass.IDEMPOTENT, EffectClass.WRITE)
    }
    calls = [ask((tool, {"n": 1})) for tool in tools]
    desk = rig(
        {
            "a": turns(*calls, ask(("b", {})), say("done")),
            "b": turns(ask(("idempotent", {"n": 2})), say("below")),
        },
        **tools,
    )
    desk.effects.code |= {"a", "b"}
    return desk


def finish(desk: Rig, run: UUID) -> Run:
    row = desk.advance(run)
    while row.status == "suspended":
        (gate,) = desk.open_gates(run)
        row = desk.answer(
            run, Verdict.APPROVE if gate.kind == "approval" else Verdict.HAPPENED, result=1
        )
    return row


@pytest.mark.slow
def test_no_death_repeats_a_write_or_loses_a_reply(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    desk = mixed(rig, ledger)
    run = desk.start("a")
    assert finish(desk, run).status == "completed"
    told = {"FrameOpened", "ModelReplied", "FrameClosed", "Completed"}
    expected, calls = [kind for kind in types(run) if kind in told], ledger.calls
    assert set(calls.values()) == {1}
    for point in range(1, ledger.passed + 1):
        ledger.begin(point)
        run = desk.start("a")
        while ledger.passed < point:
            finish(desk, run)
        Run.objects.filter(id=run).update(owner=None, due_at=timezone.now(), losses=1)
        row = finish(desk, run)
        assert (row.status, row.output) == ("completed", '"done"'), point
        # A write in doubt is not made again: here Bea says that it happened.
        doubtful = {"write 1"} if "OutcomeUnknown" in types(run) else set[str]()
        assert ledger.calls.keys() | doubtful == calls.keys(), point
        repeated = {name for name, number in ledger.calls.items() if number > 1}
        assert all(
            EFFECT_CLASSES[EffectClass(name.split()[0])].repeats_unasked for name in repeated
        )
        assert [kind for kind in types(run) if kind in told] == expected, point
