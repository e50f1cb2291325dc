"""A recorded run against the code of another day: the steps at which it would go another way."""

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from pydantic import BaseModel
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.errors import ToolError
from agents.sdk import agent, last, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.sdk.spec import AgentSpec
from runtime.core.values.enums import Verdict
from runtime.execution.jobs.replays import MAX_WORDS, Replay, replay
from runtime.models import Run
from runtime.store import pool
from runtime.store.tables import blobs
from runtime.upkeep import retention
from tests.support.calls import around
from tests.support.engine import Engine, engine_of, start_run
from tests.support.fake_ports import FakeApprovals
from tests.support.released import released
from tests.support.specs import registry_of

DAY = datetime(2026, 1, 31, tzinfo=UTC)
ORDER = {"number": "A-1"}
PAID: list[int] = []


class Order(BaseModel):
    number: str


@tool(effect="read")
def price_of(number: str) -> int:
    """Say what an order cost."""
    if number == "B-2":
        raise ToolError("there is no such order")
    return 40


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return "paid" * 20_000  # stored by its hash


def clerk_says(turn: Turn) -> Reply:
    if (price := turn.result("price_of")) is None:
        return call("price_of", number=turn.input["number"])
    if not price.ok:
        return call("refund", number=turn.input["number"]) if len(turn.results) < 2 else say("No.")
    return say("Done.") if turn.result("pay") else call("pay", euros=price.content)


clerk_model = script(clerk_says)


def clerk(**given: Any) -> AgentSpec:
    plain: dict[str, Any] = {"instructions": "Pay.", "model": clerk_model, "tools": [price_of, pay]}
    return agent(name="clerk", description="Pays.", input=Order, **{**plain, **given})


clerk_of_today = clerk()  # for the command, which loads this module


@pytest.fixture
def engine(by_hand: None) -> Any:
    PAID.clear()
    with engine_of(registry_of(clerk())) as one:
        yield one


def recorded(engine: Engine, number: str = "A-1") -> Run:
    run = engine.begin("clerk", {"number": number})
    return engine.decide(run, Verdict.APPROVE) if run.status == "suspended" else run


def today(run: Run, *agents: AgentSpec, scripted: bool = True) -> Replay:
    return replay(
        pool.join_transaction,
        run.id,
        handler=AgentEffects(registry_of(*agents)),
        approvals=FakeApprovals(),
        is_scripted=lambda _: scripted,
    )


def said(found: Replay) -> list[tuple[str, str, str]]:
    return [(" › ".join(one.path), one.recorded, one.today) for one in found.divergences]


def test_the_same_code_goes_the_same_way_and_does_nothing(engine: Engine) -> None:
    for number, calls in (("A-1", 2), ("B-2", 2)):  # the second has a refused call
        run = recorded(engine, number)
        assert run.status == "completed"
        paid = list(PAID)
        found = today(run, clerk())
        assert said(found) == []
        assert (found.agents, found.replies, found.kept, found.calls) == (1, 3, 0, calls)
        assert paid == PAID


def worded(order: Order) -> str:
    return f"Pay {order.number}."


@script
def recalls(turn: Turn) -> Reply:
    """Say what the agent remembers."""
    return say(" ".join(str(one["text"]) for one in turn.memory) or "Nothing.")


def test_instructions_made_of_the_input_and_a_memory_are_those_of_the_run(
    by_hand: None, everything_permitted: None
) -> None:
    spec = clerk(model=recalls, instructions=worded, thread_memory=last(4))
    released(spec)
    with engine_of(registry_of(spec)) as engine:
        for _ in range(2):
            found = engine.go_on(start_run("clerk", ORDER, thread="t"))
    assert found.output == '"{\\"number\\": \\"A-1\\"} Nothing."'
    assert (said(today(found, spec)), today(found, spec).replies) == ([], 1)


def test_each_change_is_found_at_its_step(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(engine)

    @script
    def generous(turn: Turn) -> Reply:
        reply = clerk_says(turn)
        return (
            call("pay", euros=400) if turn.result("price_of") and not turn.result("pay") else reply
        )

    @tool(effect="idempotent", approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return "paid" * 20_000  # stored by its hash

    waits, starts = "waits for a person, effect class write", "starts without a person"
    read = f"{starts}, effect class read"
    cases: list[tuple[AgentSpec, list[tuple[str, str, str]]]] = [
        (
            clerk(model=generous),
            [("clerk", "calls pay with {'euros': 40}", "calls pay with {'euros': 400}")],
        ),
        (
            clerk(approvals="every_call"),
            [("clerk › price_of", read, "waits for a person, effect class read")],
        ),
        (
            clerk(tools=[price_of, pay]),
            [("clerk › pay", waits, "waits for a person, effect class idempotent")],
        ),
        (
            clerk(tools=[price_of]),
            [("clerk › pay", waits, "refused: there is no tool named pay; there are: price_of")],
        ),
        (clerk(instructions="Pay soon."), [("clerk", "its instructions", "other instructions")]),
        (
            replace(clerk(), name="other"),
            [("clerk", "the agent started", "there is no such agent")],
        ),
    ]
    for spec, divergences in cases:
        assert said(today(run, spec)) == divergences
    first = today(run, clerk(model=generous)).divergences[0]
    assert first.position == 3  # after the start, and the agent with its first reply
    monkeypatch.setattr("runtime.execution.jobs.replays.MAX_KEPT", 2)
    many = today(run, clerk(model=script(lambda turn: say("x" * 5000))))
    assert len(many.divergences) == 2
    long = many.document(1)
    (step,) = long["divergences"]
    assert (len(step["today"]), step["today_reply"], long["more"]) == (MAX_WORDS + 1, None, 2)


@tool(effect="read", secret_args=("pin",))
def enter(pin: str) -> str:
    """Enter."""
    return "in"


def enters(pin: str, answer: str = "In.") -> Any:
    return script(lambda turn: say(answer) if turn.results else call("enter", pin=pin))


def test_secrets_and_held_answers_are_compared_and_not_printed(by_hand: None) -> None:
    def porter(*words: str) -> AgentSpec:
        return clerk(model=enters(*words), tools=[enter], answer=True)

    with engine_of(registry_of(porter("canary"))) as engine:
        run = recorded(engine)
    assert run.status == "completed"
    assert said(today(run, porter("canary"))) == []
    secret, answer = (
        "calls enter with {'pin': '••••'}",
        "calls final_answer with {'answer': '••••'}",
    )
    assert said(today(run, porter("canary-2"))) == [("clerk", secret, secret)]
    again = today(run, porter("canary", "canary-3"))
    [(_, *found)] = said(again)
    assert [one.startswith(answer) for one in found] == [True, True]
    assert "canary" not in f"{found}{again.document(20)}"


def broken(order: Order) -> str:
    raise KeyError(order.number)


def test_instructions_that_cannot_be_made_are_a_divergence(engine: Engine) -> None:
    [(path, before, now)] = said(today(recorded(engine), clerk(instructions=broken)))
    assert (path, before) == ("clerk", "instructions made of its input")
    assert "broken failed: KeyError: 'A-1'" in now


def test_an_archived_run_is_replayed_and_an_erased_one_has_nothing_left(
    engine: Engine, object_store: object, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_AGENTS, run = (__name__,), recorded(engine)

    def archive(*_: object) -> None:
        with pool.open_own() as own:
            retention.archive_run(own, run.id)
            own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '2 hours'")
            blobs.collect(own, 10)

    with monkeypatch.context() as patch:
        around(patch, blobs, "fetch", before=archive)  # after the entries were read
        found = today(run, clerk(approvals="every_call"))
    assert Run.objects.get(id=run.id).archived_at is not None
    for replayed in (found, today(run, clerk(approvals="every_call"))):
        assert (replayed.replies, [step.position for step in replayed.divergences]) == (3, [2])
    assert retention.erase(run.id)
    with pytest.raises(CommandError, match="nothing of the run"):
        call_command("replay_run", str(run.id))


def test_replies_of_models_stand(engine: Engine) -> None:
    run = recorded(engine)
    found = today(run, clerk(model=lambda *_: say("No.")), scripted=False)
    assert (said(found), found.replies, found.kept) == ([], 0, 3)


def test_the_command_prints_where_a_run_would_go_another_way(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_AGENTS, run = (__name__,), recorded(engine)
    out = StringIO()
    call_command("replay_run", str(run.id), stdout=out)
    assert out.getvalue().startswith(
        "It would go the same way (compared: 1 agents, 3 replies, 2 calls;"
    )
    monkeypatch.setitem(globals(), "clerk_of_today", clerk(approvals="every_call"))
    with pytest.raises(CommandError, match="another way from entry 2 on"):
        call_command("replay_run", str(run.id), stdout=out)
    assert "Entry 2, clerk › price_of\n  recorded: starts" in out.getvalue()
    with pytest.raises(CommandError, match="there is no run"):
        call_command("replay_run", str(uuid4()))
