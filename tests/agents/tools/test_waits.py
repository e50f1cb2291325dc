"""Agents that wait for a time or an event, driven in memory, and which event ends which wait."""

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from pydantic import BaseModel

from agents.sdk import Budget, agent
from agents.sdk.spec import AgentSpec
from agents.testing import Flow, Turn, call, drive, replies, say, together
from agents.testing.event_match import contains
from agents.testing.worker import BEGINNING
from agents.tools.timers import sleep_until, wait_for
from runtime.core.limits import MAX_MATCH, MAX_WAIT_DAYS

LATER = (BEGINNING + timedelta(days=3)).isoformat()
SOON = (BEGINNING + timedelta(hours=1)).isoformat()
SIGNED = {"contract": "C-1", "by": {"name": "Bo", "roles": ["owner"]}}


class Contract(BaseModel):
    number: str


def clerk(*steps: Any, **given: Any) -> AgentSpec:
    return agent(
        name="clerk",
        description="Waits.",
        instructions="Wait.",
        input=Contract,
        model=replies(*steps, _last),
        tools=[sleep_until, wait_for],
        **given,
    )


def _last(turn: Turn) -> Any:
    return say(json.dumps([[one.outcome, one.content] for one in turn.results]))


def _for(match: Any = None, until: str = LATER, event: str = "signed") -> Any:
    return call("wait_for", event=event, match=match or {}, until=until)


def started(*steps: Any, **given: Any) -> Flow:
    return drive(clerk(*steps, **given), {"number": "C-1"})


def results(run: Flow) -> Any:
    assert run.output is not None, str(run)
    return json.loads(run.output)


def test_a_call_returns_the_event_that_it_waited_for() -> None:
    run = started(_for({"contract": "C-1"}))
    assert (run.status, run.gates, run.calls) == ("waiting", (), ())
    assert [(wait.event, wait.match) for wait in run.waits] == [("signed", {"contract": "C-1"})]
    run.send("signed", SIGNED, id="42")
    assert results(run) == [["success", {"event": "signed", "id": "42", "data": SIGNED}]]


@pytest.mark.parametrize(
    ("event", "data"), [("paid", SIGNED), ("signed", {"contract": "C-2"}), ("signed", {})]
)
def test_another_event_ends_nothing(event: str, data: dict[str, Any]) -> None:
    run = started(_for({"contract": "C-1"}))
    with pytest.raises(AssertionError, match="nothing waits for"):
        run.send(event, data)
    assert run.status == "waiting"


def test_a_missing_event_times_out() -> None:
    run = started(_for()).sleep()
    assert results(run) == [["success", {"timed_out": True}]]
    assert run.clock.isoformat() == LATER


def test_a_call_sleeps_until_its_moment() -> None:
    run = started(call("sleep_until", moment=LATER))
    assert run.status == "waiting"
    assert results(run.sleep()) == [["success", {"slept_until": LATER}]]


def test_several_calls_of_a_turn_wait_side_by_side() -> None:
    run = started(together(_for(), call("sleep_until", moment=SOON)))
    run.sleep()
    assert (run.status, len(run.waits)) == ("waiting", 1)
    run.send("signed", SIGNED)
    assert [outcome for outcome, _ in results(run)] == ["success", "success"]


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
    run = started(wait)
    ((outcome, content),) = results(run)
    assert outcome == "failed"
    assert why in content
    assert "match" in why or "are taken" in why or "2030-01-01T09:00:00" in content


def test_many_such_errors_do_not_fail_the_run() -> None:
    past = [_for(until=f"2029-12-0{day}T09:00:00Z") for day in range(1, 8)]
    assert [outcome for outcome, _ in results(started(*past))] == ["failed"] * 7


def test_a_wait_that_people_must_allow_begins_when_they_have() -> None:
    run = started(_for(), approvals="every_call")
    assert run.gate.sentence.startswith("Wait for the event signed")
    run.approve()
    assert len(run.waits) == 1
    run.send("signed", SIGNED)
    assert run.status == "completed"


def test_cancelling_ends_it() -> None:
    run = started(_for()).cancel("not needed")
    assert (run.status, run.waits) == ("cancelled", ())


def test_the_time_of_a_wait_is_no_time_at_work() -> None:
    run = started(_for(), call("sleep_until", moment=LATER), budget=Budget(seconds=60))
    assert run.send("signed", SIGNED).sleep().status == "completed"


def test_a_message_in_the_meantime_is_heard_with_its_result() -> None:
    run = started(_for()).write("never mind")
    assert run.status == "waiting"
    assert run.send("signed", SIGNED).status == "completed"


VALUES = [None, True, False, 0, 1, 1.0, 2.5, "", "a", "b"]


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
    assert [contains(data, match) for data, match in pairs] == said
    assert 300 < sum(said) < 1700
