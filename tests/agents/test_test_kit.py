"""The test kit: runs in memory by the engine's rules, with people, crashes, and waits for a time or an event."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from pydantic import BaseModel

from agents.sdk import Budget, ToolContext, tool
from agents.testing import Flow, Turn, call, drive, say, together
from agents.testing.worker import BEGINNING, is_jsonb_match
from agents.tools.timers import sleep_until, wait_for
from runtime.core.values.enums import Verdict
from runtime.core.values.limits import MAX_MATCH, MAX_WAIT_DAYS
from runtime.errors import InvalidInput
from tests.support.specs import spec_of

done: list[str] = []
A1 = {"name": "A-1"}
PAY = call("refund", **A1, euros=40)
LATER = (BEGINNING + timedelta(days=3)).isoformat()
SOON = (BEGINNING + timedelta(hours=1)).isoformat()
SIGNED = {"contract": "C-1", "by": {"name": "Bo", "roles": ["owner"]}}
VALUES = [None, True, False, 0, 1, 1.0, 2.5, "", "a", "b"]


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@tool(approval=True, risk="high", sentence="Pay {euros} euros back for {name}")
def refund(context: ToolContext, name: str, euros: int) -> dict[str, str]:
    """Pays back."""
    done.append(context.key)
    return {"paid": name}


@tool()
def post(name: str) -> str:
    """Sends a letter."""
    done.append("post")
    return "sent"


@tool(secret_args=["code"])
def unlock(code: str) -> str:
    """Unlocks."""
    done.append(code)
    return f"opened with {code[:1]}"


class Paid(BaseModel):
    paid: str


desk = spec_of("desk", tools=[refund, post, unlock])


def at_desk(*model: Any, **options: Any) -> Flow:
    return drive(desk, A1, model=model, **options)


def test_a_call_that_expires_is_never_made(settings: Any) -> None:
    settings.SIGNOFF_MODEL = "openai:nothing"  # a configured provider is not asked
    assert at_desk(PAY, say("Too late.")).expire().output == "Too late."
    assert done == []
    with pytest.raises(AssertionError, match="to deny needs a reason"):
        at_desk(PAY).deny("")


def test_a_tool_is_told_who_asked_and_who_approved() -> None:
    told = []

    @tool(approval=True)
    def act(context: ToolContext) -> None:
        """Acts."""
        told.append((context.requester, context.approvers, context.comment))

    asker = spec_of("asker", tools=[act])
    drive(asker, A1, model=[call("act"), say("Done.")]).approve(comment="Go ahead.")
    drive(asker, A1, model=[call("act"), say("Done.")]).approve()
    assert told == [("ada", ("bea",), "Go ahead."), ("ada", ("bea",), None)]


def test_an_answer_takes_the_place_of_the_call_and_must_be_of_its_type() -> None:
    def last(turn: Turn) -> Any:
        paid = turn.result("refund")
        assert paid is not None
        return say(f"{paid.outcome} {paid.content} {paid.reported}")

    with pytest.raises(InvalidInput):
        at_desk(PAY).answer(40)
    flow = at_desk(PAY, last).answer({"paid": "by hand"})
    assert flow.output == "success {'paid': 'by hand'} True"
    assert done == []


def test_an_answer_instead_of_a_sub_agent_must_be_what_the_sub_agent_returns() -> None:
    typed = replace(desk, name="typed", output=Paid, output_schema=Paid.model_json_schema())
    boss = spec_of("boss", subagents=[desk, typed], approvals="every_call")

    def gated(name: str) -> Flow:
        return drive(boss, A1, models={"boss": [call(name, **A1), say("Done.")], name: []})

    for name, result, wrong in (("desk", "By hand.", {}), ("typed", {"paid": "yes"}, {"paid": 1})):
        with pytest.raises(InvalidInput):
            gated(name).answer(wrong)
        assert gated(name).answer(result).output == "Done."


def test_two_gates_are_decided_each_for_itself() -> None:
    flow = at_desk(together(PAY, call("refund", name="A-2", euros=1)), say("Done."))
    assert len(flow.gates) == 2
    with pytest.raises(AssertionError, match="not one gate of any tool; waiting: refund, refund"):
        flow.approve()


def test_a_person_resolves_a_write_whose_worker_died() -> None:
    def doubted() -> Flow:
        return at_desk(call("post", **A1), say("Sent."), crash_after=["post"])

    assert doubted().settle("run_again").output == "Sent."
    assert done == ["post"] * 2
    assert doubted().settle(Verdict.GIVE_UP, reason="never mind").output == "Sent."
    with pytest.raises(InvalidInput):
        doubted().settle("happened", result=5)
    assert doubted().calls[0].outcome is None
    with pytest.raises(AssertionError, match="at this gate one can say happened, run_again"):
        doubted().approve()


def test_the_kit_refuses_invalid_calls_like_the_engine() -> None:
    flow = at_desk(*(call(f"tool{number}") for number in range(5)))
    assert flow.status == "failed"
    assert "5 calls that could not be made, among them tool4: there is no tool" in str(flow.reason)
    with pytest.raises(InvalidInput) as problem:
        drive(desk, {})
    assert problem.value.field == "input.name"


def test_a_script_that_runs_out_fails_the_run() -> None:
    flow = drive(spec_of("plain"), A1, model=[])
    assert flow.status == "failed"
    assert flow.reason == "NoReplyLeft: the test wrote 0 replies, and turn 1 began"
    flow = at_desk(call("post", **A1))
    assert flow.reason == "NoReplyLeft"  # the text of a model with secrets is not repeated


def _last(turn: Turn) -> Any:
    return say(json.dumps([[one.outcome, one.content] for one in turn.results]))


def _for(match: Any = None, until: str = LATER) -> Any:
    return call("wait_for", event="signed", match=match or {}, until=until)


def started(*steps: Any, **given: Any) -> Flow:
    clerk = spec_of("clerk", tools=[sleep_until, wait_for], **given)
    return drive(clerk, {"name": "C-1"}, model=[*steps, _last])


def results(run: Flow) -> Any:
    assert run.output is not None, str(run)
    return json.loads(run.output)


def test_a_call_returns_the_event_that_it_waited_for() -> None:
    run = started(_for({"contract": "C-1"}))
    assert (run.gates, run.calls, run.waits[0].match) == ((), (), {"contract": "C-1"})
    for event, data in (("paid", SIGNED), ("signed", {"contract": "C-2"}), ("signed", {})):
        with pytest.raises(AssertionError, match="nothing waits for"):
            run.send(event, data)
    assert run.status == "waiting"
    run.write("never mind")
    assert run.status == "waiting"
    run.send("signed", SIGNED, id="42")
    assert results(run) == [["success", {"event": "signed", "id": "42", "data": SIGNED}]]


def test_calls_of_a_turn_wait_side_by_side_to_their_moment() -> None:
    both = together(_for(), call("sleep_until", moment=SOON))
    run = started(both, budget=Budget(seconds=60)).sleep()
    assert (run.status, len(run.waits)) == ("waiting", 1)
    run.sleep()
    assert run.clock.isoformat() == LATER
    said = [["success", {"timed_out": True}], ["success", {"slept_until": SOON}]]
    assert results(run) == said


@pytest.mark.parametrize(
    ("wait", "why"),
    [
        (_for(until="2029-12-31T09:00:00Z"), "until: must be still to come"),
        (_for(until="tomorrow"), "until: must be a moment with its zone"),
        (_for(until="2030-01-02T09:00:00"), "until: must be a moment with its zone"),
        (_for(until="2039-01-02T09:00:00Z"), f"at most {MAX_WAIT_DAYS} days ahead"),
        (_for({"x": "y" * MAX_MATCH}), f"at most {MAX_MATCH} are taken"),
        (call("sleep_until", moment="2029-01-02T09:00:00Z"), "moment: must be still to come"),
    ],
)
def test_an_invalid_wait_is_an_error_with_the_current_time(wait: Any, why: str) -> None:
    found = results(started(*[wait] * 4))
    assert [outcome for outcome, _ in found] == ["failed"] * 4
    assert why in found[0][1]
    assert "are taken" in why or "2030-01-01T09:00:00" in found[0][1]


def test_a_wait_that_people_must_allow_begins_when_they_have() -> None:
    run = started(_for(), approvals="every_call")
    assert run.gate.sentence.startswith("Wait for the event signed")
    assert len(run.approve().waits) == 1
    run.cancel("not needed")
    assert (run.status, run.waits) == ("cancelled", ())


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if depth and kind < 0.35:
        return {key: _value(chance, depth - 1) for key in "abc" if chance.random() < 0.5}
    if depth and kind < 0.6:
        return [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    return chance.choice(VALUES)


def _part(chance: random.Random, value: Any) -> Any:
    """Something that may be contained in it."""
    if isinstance(value, dict):
        return {key: _part(chance, one) for key, one in value.items() if chance.random() < 0.7}
    if isinstance(value, list):
        return [_part(chance, one) for one in value if chance.random() < 0.7]
    return value if chance.random() < 0.8 else chance.choice(VALUES)


@pytest.mark.django_db
def test_an_event_in_memory_matches_as_postgres_says() -> None:
    chance = random.Random(15)
    pairs = []
    for _ in range(2000):
        data = {"x": _value(chance, 3), "y": _value(chance, 2)}
        pairs.append((data, _part(chance, data)))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT d::jsonb @> m::jsonb FROM unnest(%s::text[], %s::text[]) AS p(d, m)",
            [[json.dumps(data) for data, _ in pairs], [json.dumps(match) for _, match in pairs]],
        )
        said = [row[0] for row in cursor.fetchall()]
    assert [is_jsonb_match(data, match) for data, match in pairs] == said
    assert 300 < sum(said) < 1700
