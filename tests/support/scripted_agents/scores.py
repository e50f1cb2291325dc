"""The scripts that the agents of flows.py play; together these runs pass every kill point."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from runtime.core.values.budgets import BudgetLimits

Turns = list[list[dict[str, Any]]]

BELOW = ("middle", "inner", "lower", "lowest")  # the agents below outer, each below the one before


@dataclass(frozen=True, slots=True)
class Score:
    """One run: its script, Bea's verdict at its gates, whether Ada cancels it, and its required end.

    A `paused` run is paused at its first gate for a while, a `written` one gets a message there. Of an `asked` one
    Bea asks two questions at each gate, of an `extended` one she extends each deadline. She grants one unit of each
    limit in `budget` at a time, and decides nothing before `closed` frames have closed.
    """

    turns: Turns
    denied: bool = False
    cancelled: bool = False
    paused: bool = False
    written: bool = False
    asked: bool = False
    extended: bool = False
    closed: int = 0
    ends: str = "completed"
    budget: BudgetLimits | None = None


def effects() -> Score:
    """Every effect class, a failure and a refusal, one after the other."""
    return Score(_one_by_one("send", "look", "put", "book", "refuse", "unheard_of"))


def transactions() -> Score:
    """Nothing but transactions, whose results are committed on a way of their own."""
    return Score(_one_by_one("book"))


def waits() -> Score:
    """A model and a tool that have to be tried again."""

    def part(depth: int) -> Turns:
        slow = {"tool": "slow_model", "token": uuid4().hex}
        return [[slow, _call("look", depth)], [_call("insist", depth)]]

    return Score(_nested(part))


def each_item() -> Score:
    """Three items, two of them at once: while one waits for Bea, another one ends, and the third one fails."""
    items: list[Turns] = [
        [[_call(tool, 2)] for tool in tools] for tools in (("put", "pay"), ("book",))
    ]
    items.append([[{"tool": "fail_model"}]])
    parts = [{"turns": turns} for turns in items]
    turns: Turns = [[{"tool": "each_inner", "args": {"items": parts}}], [_call("send", 0)]]
    return Score(turns, closed=len(items) - 1)


def failures() -> Score:
    """An agent whose model fails below one that continues, and then the root agent whose model fails."""
    failing: Turns = [[{"tool": "fail_model"}]]
    middle: Turns = [[_hand_over("inner", failing)], [_call("send", 1)]]
    return Score([[_hand_over("middle", middle)], [_call("send", 0)], *failing], ends="failed")


def ended(depth: int) -> Score:
    """Cancelled while one call waits at a gate and another is under way."""
    turns = [[_call("linger", depth), _call("pay", depth)]]
    for agent in ("inner", "middle")[2 - depth :]:
        turns = [[_hand_over(agent, turns)]]
    return Score(turns, cancelled=True, ends="cancelled")


def crowd() -> Score:
    """Everything at once at every depth, as many calls as possible under way together."""
    at_once = ("send", "look", "put", "book", "refuse", "insist", "pay")

    def part(depth: int) -> Turns:
        return [[_call(tool, depth) for tool in at_once], [_call("send", 9)]]

    return Score(_nested(part))


def tower() -> Score:
    """Five agents, each below the one before, and at every depth a write, a transaction and a gate."""
    at_once = ("send", "book", "pay")
    return Score(_nested(lambda depth: [[_call(tool, depth) for tool in at_once]], BELOW))


def errands() -> Score:
    """A little of everything in one agent: a run that is through soon, so that there can be many."""
    turns = (("look", "put", "send"), ("pay",), ("book",))
    return Score([[_call(tool, 0) for tool in turn] for turn in turns])


def labours() -> Score:
    """One write that runs until the test ends it."""
    return Score([[_call("labour", 0)]])


def writes(number: int) -> Score:
    """Return a score with so many writes in one turn; none ends in a worker where calls stay."""
    return Score([[{"tool": "stay", "args": {"name": f"number {n}"}} for n in range(number)]])


def planned(turns: Turns, tool: str) -> int:
    """Count a score's calls of a tool, at every depth."""
    calls = [one for turn in turns for one in turn]
    below: int = sum(
        planned(part["turns"], tool)
        for one in calls
        for part in one.get("args", {}).get("items", [one.get("args", {})])
        if "turns" in part
    )
    return below + len([one for one in calls if one["tool"] == tool])


def _call(tool: str, depth: int) -> dict[str, Any]:
    return {"tool": tool, "args": {"name": f"{tool} at depth {depth}"}}


def _wait() -> dict[str, Any]:
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    match = {"token": uuid4().hex}
    return {"tool": "wait_for", "args": {"event": "signed", "match": match, "until": until}}


def _hand_over(agent: str, turns: Turns) -> dict[str, Any]:
    return {"tool": agent, "args": {"turns": turns}}


def _one_by_one(*tools: str) -> Turns:
    """At each depth a turn for each of these."""
    return _nested(lambda depth: [[_call(tool, depth)] for tool in tools])


def _nested(part: Callable[[int], Turns], below: tuple[str, ...] = BELOW[:2]) -> Turns:
    """A part for each depth; the agents `below` the first one play their own parts."""
    turns = part(len(below))
    for depth in reversed(range(len(below))):
        turns = [*part(depth), [_hand_over(below[depth], turns)]]
    return turns


SCORES: dict[str, Callable[[], Score]] = {
    "transactions": transactions,
    "effects": effects,
    "gates": lambda: Score(_one_by_one("pay")),
    "previews": lambda: Score(_one_by_one("sign")),
    "a denial": lambda: Score([[_call("pay", 0)]], denied=True),  # a third would end the run
    "denials": lambda: Score(_nested(lambda depth: [[_call("pay", depth)]][:depth]), denied=True),
    "paused at a gate": lambda: Score([[_call("pay", 0)]], paused=True),
    "written to at a gate": lambda: Score([[_call("pay", 0)]], written=True),
    "given more time": lambda: Score(_one_by_one("pay"), extended=True),
    "asked about its calls": lambda: Score(_one_by_one("pay"), asked=True),
    "external events": lambda: Score(_nested(lambda depth: [[_wait()], [_call("send", depth)]])),
    "waits": waits,
    "failures": failures,
    "each item": each_item,
    "limits, granted one by one": lambda: Score(
        _one_by_one("look", "send"), budget=BudgetLimits(turns=3, calls=2)
    ),
    "cancelled with a call under way": lambda: Score(
        [[_call("linger", 0)]], cancelled=True, ends="cancelled"
    ),
    "cancelled at depth 0": lambda: ended(0),
    "cancelled at depth 1": lambda: ended(1),
    "cancelled at depth 2": lambda: ended(2),
}
