"""Agents for these tests: five, nested, that play what their input says, with tools of every effect class.

The input is a list of turns, each a list of calls; a call of a sub-agent carries the sub-agent's own list.
So a test defines the whole run before it starts, and nothing depends on chance.
"""

import functools
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from pydantic import BaseModel

from agents.sdk import Compaction, NotDone, Preview, RetryPolicy, ToolContext, ToolError, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from agents.sdk.spec import ToolSpec
from agents.tools.each import for_each
from agents.tools.timers import wait_for
from tests.support.scripted_agents import ledger
from tests.support.specs import spec_of

HOURS = "SIGNOFF_FAULTS_CLOCK"  # by which the wall clock of this process is ahead; its steady clock is right
if hours := os.environ.get(HOURS):
    time_machine.travel(datetime.now(UTC) + timedelta(hours=float(hours)), tick=True).start()

SOON = RetryPolicy(attempts=3, base=0.1, ceiling=0.2)
DEADLINE = 1.0  # short, because a call in doubt may run again only after it


class Score(BaseModel):
    """What to play. A call is `{"tool": …, "args": {…}}`; `fail_model` and `slow_model` are no tools."""

    turns: list[list[dict[str, Any]]]


def _noting(
    tool_name: str,
    effect: str,
    note: Callable[[str, int], None] = ledger.note,
    *,
    approval: bool = False,
    **more: Any,
) -> ToolSpec:
    """A tool that does nothing but note that it happened."""

    def noting(context: ToolContext, name: str) -> str:
        """Write something down."""
        note(context.key, context.attempt)
        return name

    noting.__name__ = tool_name
    return tool(effect=effect, deadline=DEADLINE, approval=approval, **more)(noting)


look = _noting("look", "read")
put = _noting("put", "idempotent")
book = _noting("book", "transactional", ledger.note_row)
send = _noting("send", "write")
pay = _noting("pay", "write", approval=True)
seen = Preview(summary="Write it down.", counts={"notes": 1})
sign = _noting("sign", "write", approval=True, preview=lambda: seen, precondition=lambda: None)


@tool(effect="write", deadline=DEADLINE)
def stay(context: ToolContext, name: str) -> str:
    """Write something outside, and have no end in a process where calls stay."""
    ledger.note(context.key, context.attempt)
    while ledger.stays():
        time.sleep(0.02)
    return name


@tool(effect="write", deadline=300.0)
def labour(context: ToolContext, name: str) -> str:
    """Write something outside until the test ends it."""
    ledger.note(context.key, context.attempt)
    while not ledger.is_marked("enough"):
        time.sleep(0.05)
    return name


@tool(effect="read", deadline=DEADLINE)
def refuse(name: str) -> str:
    """Say no."""
    raise ToolError(f"{name}: no")


@tool(effect="idempotent", deadline=DEADLINE, retry=SOON)
def insist(context: ToolContext, name: str) -> str:
    """Do nothing the first time."""
    if ledger.first_time(f"{context.run}-{context.frame}-{context.call}"):
        raise NotDone("not yet", after=0.1)
    ledger.note(context.key, context.attempt)
    return name


@tool(effect="read", deadline=120.0)
def linger(context: ToolContext, name: str) -> str:
    """Take until the test ends it."""
    ledger.first_time(f"{context.run}-lingers")
    while not ledger.is_marked(f"{context.run}-enough") and context.remaining() > 1.0:
        time.sleep(0.02)
    ledger.note(context.key, context.attempt)
    return name


def _explain(turn: Turn) -> str:
    """Answer a question, unless it shall have no answer."""
    if turn.question == "fail":
        raise ValueError("this model has no answer")
    return "Because the score says so."


@functools.partial(script, answers=_explain)
def play(turn: Turn) -> Reply:
    """Plays all five: the next turn of the score, or the end of it."""
    ok, past = _summed_up(turn.summary)
    done = past + len(turn.results)
    for calls in turn.input["turns"]:
        if done == 0:
            return _turn(calls)
        done -= len([one for one in calls if "token" not in one])
    ok += sum(result.ok for result in turn.results)
    return say(f"{ok} of {past + len(turn.results)} calls done")


def sum_up(messages: tuple[dict[str, Any], ...]) -> str:
    """How many calls there were, and how many of them went well."""
    ok, past = 0, 0
    for message in messages:
        if message["role"] == "summary":
            ok, past = _summed_up(message["content"])
        for result in message.get("results", ()):
            ok, past = ok + (result["outcome"] == "returned"), past + 1
    return f"{ok} of {past}"


def _summed_up(summary: str) -> tuple[int, int]:
    ok, _, past = (summary or "0 of 0").split()
    return int(ok), int(past)


def _turn(calls: list[dict[str, Any]]) -> Reply:
    for one in calls:
        if one["tool"] == "fail_model":
            raise ValueError("this model fails")
        if one["tool"] == "slow_model" and ledger.first_time(one["token"]):
            raise TimeoutError
    return together(*(call(one["tool"], **one["args"]) for one in calls if "token" not in one))


LONG = Compaction(messages=9, summarise=sum_up)  # more than four turns
TOOLS = (look, put, book, send, stay, labour, pay, sign, refuse, insist, linger, wait_for)

PARTS: dict[str, Any] = {"input": Score, "model": play, "tools": TOOLS, "compaction": LONG}
lowest = spec_of("lowest", **PARTS)
lower = spec_of("lower", **PARTS, subagents=[lowest])
inner = spec_of("inner", **PARTS, subagents=[lower])
middle = spec_of("middle", **PARTS, subagents=[inner])
outer = spec_of("outer", **PARTS, subagents=[middle, for_each(inner, at_once=2)])
