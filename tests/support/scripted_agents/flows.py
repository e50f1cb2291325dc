"""Agents for these tests: five, nested, that play what their input says, with tools of every effect class.

The input is a list of turns, each a list of calls; a call of a sub-agent carries the sub-agent's own list.
So a test defines the whole run before it starts, and nothing depends on chance.
"""

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agents.sdk import Compaction, NotDone, RetryPolicy, ToolContext, ToolError, tool
from agents.sdk.scripts import Reply, Turn, call, say, script, together
from agents.tools.timers import wait_for
from tests.support.scripted_agents import clock, ledger
from tests.support.specs import spec_of

clock.set_wrong()

SOON = RetryPolicy(attempts=3, base=0.1, ceiling=0.2)
DEADLINE = 1.0  # short, because a call in doubt may run again only after it


class Score(BaseModel):
    """What to play. A call is `{"tool": …, "args": {…}}`; `fail_model` and `slow_model` are no tools."""

    turns: list[list[dict[str, Any]]]


@tool(effect="read", deadline=DEADLINE)
def look(context: ToolContext, name: str) -> str:
    """Read something outside."""
    ledger.note(context.key, context.attempt)
    return name


@tool(effect="idempotent", deadline=DEADLINE)
def put(context: ToolContext, name: str) -> str:
    """Write something outside that may be written again."""
    ledger.note(context.key, context.attempt)
    return name


@tool(effect="transactional", deadline=DEADLINE)
def book(context: ToolContext, name: str) -> str:
    """Write something into the database of this application."""
    ledger.note_row(context.key, context.attempt)
    return name


@tool(effect="write", deadline=DEADLINE)
def send(context: ToolContext, name: str) -> str:
    """Write something outside that must not be written again."""
    ledger.note(context.key, context.attempt)
    return name


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
    enough = Path(f"{os.environ[ledger.PATH]}.enough")
    while not enough.exists():
        time.sleep(0.05)
    return name


@tool(effect="write", approval=True, deadline=DEADLINE)
def pay(context: ToolContext, name: str) -> str:
    """Write something outside that a person must allow."""
    ledger.note(context.key, context.attempt)
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


@tool(effect="read", deadline=10.0)
def linger(context: ToolContext, name: str) -> str:
    """Take until the test ends it."""
    ledger.first_time(f"{context.run}-lingers")
    enough = Path(f"{os.environ[ledger.PATH]}.{context.run}-enough")
    while not enough.exists() and context.remaining() > 1.0:
        time.sleep(0.02)
    ledger.note(context.key, context.attempt)
    return name


@script
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
TOOLS = (look, put, book, send, stay, labour, pay, refuse, insist, linger, wait_for)

PARTS: dict[str, Any] = {"input": Score, "model": play, "tools": TOOLS, "compaction": LONG}
lowest = spec_of("lowest", **PARTS)

lower = spec_of("lower", **PARTS, subagents=[lowest])

inner = spec_of("inner", **PARTS, subagents=[lower])

middle = spec_of("middle", **PARTS, subagents=[inner])

outer = spec_of("outer", **PARTS, subagents=[middle])
