"""A process keeps the states of its runs between two claims, while the code of their agents changes its parameters.

Two processes advance random runs in turn, and one forgets a state now and then. All code of an author changes its
parameters, and keeps them and its results, to change them again before each claim. A claim must load the state that
the entries lead to, and a script must receive the same values as in another process.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from agents.llm import call
from agents.llm.messages import to_provider
from agents.sdk import Compaction, Holds, Preview, PreviewChange, ToolContext, agent, tool
from agents.sdk.scripts import Turn, script
from agents.sdk.spec import AgentSpec
from runtime.control.edit import edit
from runtime.control.interventions import ask_inquiry, send_message
from runtime.control.start import create
from runtime.control.user_actions import settle
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import Call
from runtime.core.run.reducer import initial, step
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.errors import GateNotOpen
from runtime.execution import claim
from runtime.execution.commit import LoadedRun
from runtime.execution.worker import RecentRuns
from runtime.models import Gate, Run
from runtime.store.leases import RunClaim
from runtime.store.loading import StoredRun
from tests.support.calls import around
from tests.support.engine import ADA, Engine, engine_of, later, pause, resume
from tests.support.specs import registry_of

pytestmark = pytest.mark.slow

ENDED = ("completed", "failed", "cancelled", "quarantined")
KEPT: list[Any] = []  # parameters and results of the agents' code
RESULT: list[Any] = [1, 1.0, {"n": [0]}]  # of all calls
TURNS: list[list[tuple[str, bool, int]]] = []  # still to come: tools, with the source of arguments


def spoil(value: Any) -> None:
    """Change every list and object that can be reached from a value."""
    match value:
        case dict():
            for item in [*value.values()]:
                spoil(item)
            value["spoilt"] = True
        case list() | tuple():
            for item in value:
                spoil(item)
            if isinstance(value, list) and not any(map(is_dataclass, value)):
                value.append("spoilt")
        case BaseModel():
            spoil([*vars(value).values()])
        case _ if is_dataclass(value):
            spoil([getattr(value, field.name, None) for field in fields(value)])


def keep(*values: Any) -> None:
    """Change these values now, and before each claim."""
    KEPT.extend(values)
    spoil(values)


def differences(value: Any, other: Any, path: str) -> Iterator[str]:
    """Yield where two states differ, also in types and in the order of names."""
    if type(value) is type(other) and is_dataclass(value):
        for name in {field.name for field in fields(value)} - {"timestamp"}:  # of a message
            yield from differences(getattr(value, name), getattr(other, name), f"{path}.{name}")
    elif type(value) is type(other) is dict and [*value] == [*other]:
        for name in value:
            yield from differences(value[name], other[name], f"{path}[{name!r}]")
    elif type(value) is type(other) in (list, tuple) and len(value) == len(other):
        for index, (item, same) in enumerate(zip(value, other, strict=True)):
            yield from differences(item, same, f"{path}[{index}]")
    elif type(value) is not type(other) or value != other:
        yield f"{path}: {value!r} and {other!r}"


class Task(BaseModel):
    name: str
    parts: list[dict[str, int]] = []


def brief(task: Task) -> str:
    text = f"Do {task.name} with {len(task.parts)} parts."
    keep(task)
    return text


def risk_of(parts: list[dict[str, int]]) -> str:
    keep(parts)
    return "high"


def asks(note: dict[str, Any]) -> bool:
    is_gated = bool(note["gated"])
    keep(note)
    return is_gated


def show(parts: list[dict[str, int]], context: ToolContext) -> Preview:
    shown = Preview(
        changes=[PreviewChange(what="parts", before=[{"n": 0}], after=parts)],
        counts={"parts": 1},
        targets=["ada"],
    )
    keep(context.input)
    KEPT.append(shown)
    return shown


def permits(parts: list[dict[str, int]], context: ToolContext) -> None:
    keep(parts, context.input)


def work(context: ToolContext, parts: list[dict[str, int]], note: dict[str, Any]) -> Any:
    """Returns an object that all calls share."""
    if note["fails"]:
        raise ConnectionError("cut off")
    keep(context.input, parts, note)
    KEPT.append(RESULT)
    return RESULT


@tool(risk=risk_of, approval=asks, preview=show, precondition=permits, sentence="Write {parts}")
def write(context: ToolContext, parts: list[dict[str, int]], note: dict[str, Any]) -> Any:
    """Writes."""
    return work(context, parts, note)


@tool(secret_args=["pin"], secret_result=True)
def log_in(pin: list[int], note: dict[str, Any]) -> Any:
    """Returns its arguments."""
    KEPT.extend([pin, note])
    return [pin, note]


def arguments(name: str, is_gated: bool, number: int) -> dict[str, Any]:
    note = {"gated": is_gated, "fails": number == 3, "list": [number, 1.0, None, {"a": [True]}]}
    values = {"parts": [{"n": number}], "note": note, "name": "x", "pin": [number]}
    names = {"log_in": ("pin", "note"), "helper": ("name", "parts")}.get(name, ("parts", "note"))
    KEPT.append(values)
    return {name: values[name] for name in names}


def reply_with(calls: list[tuple[str, bool, int]]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(call[0], arguments(*call)) for call in calls])


def lead(turn: Turn) -> ModelResponse:
    keep(turn)
    return reply_with(TURNS.pop(0)) if TURNS else ModelResponse(parts=[TextPart("Done.")])


def help_boss(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    keep(*messages)
    if len(messages) < 5:
        return reply_with([("work", True, len(messages)), ("log_in", True, 0)])
    return ModelResponse(parts=[ToolCallPart("final_answer", arguments("helper", True, 2))])


def sum_up(messages: tuple[dict[str, Any], ...]) -> str:
    text = f"{len(messages)} messages"
    keep(*messages)
    return text


def stops(messages: tuple[dict[str, Any], ...]) -> str | None:
    reason = "Look." if len(messages) % 6 == 0 else None
    keep(*messages)
    return reason


READ = tool(effect="read", risk=risk_of, approval=asks)(work)
HELPER = agent(
    name="helper", description="Helps.", instructions=brief, input=Task, output=Task,
    model=help_boss, tools=[READ, log_in],
)  # fmt: skip
BOSS = agent(
    name="boss", description="Leads.", instructions=brief, input=Task, model=script(lead),
    tools=[READ, write], subagents=[HELPER], holds=Holds(when=stops),
    compaction=Compaction(messages=8, summarise=sum_up),
)  # fmt: skip


class Processes:
    """Two workers with the same agents, each with the states that it keeps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._contexts = [engine.context, replace(engine.context, recent=RecentRuns())]
        self.wrong: list[str] = []

    def start(self) -> UUID:
        with transaction.atomic():
            value = {"name": "x", "parts": [{"n": 1}]}
            return create(agent="boss", input=value, requester=ADA).run

    def advance(self, run: UUID, worker: int, *, forgets: bool) -> Run:
        spoil(KEPT)
        context = self._contexts[worker]
        if forgets:
            context.recent.pop(run, ())
        later(run)
        claim.advance(run, context)
        return Run.objects.get(id=run)

    def act(self, run: UUID, act: str) -> None:
        gate = Gate.objects.filter(run=run, state="open").order_by("opened_at", "call").first()
        if act == "message":
            send_message(run=run, text="Go on.", actor=ADA)
        elif act in ("pause", "resume"):
            {"pause": pause, "resume": resume}[act](run)
        elif gate is not None and act == "ask":
            ask_inquiry(run=run, gate=gate.id, by="bea", text="Why?")
        elif gate is not None:
            with transaction.atomic():
                settle(gate=gate.id, decision=self._decision(gate, Verdict(act)))

    def _decision(self, gate: Gate, verdict: Verdict) -> Decision:
        changes = None
        if gate.kind == GateKind.IN_DOUBT:
            verdict = Verdict.RUN_AGAIN if verdict is Verdict.APPROVE else Verdict.HAPPENED
        elif gate.kind != GateKind.APPROVAL:
            verdict = Verdict.CONTINUE
        elif verdict is Verdict.EDIT:
            shown = next(row for row in self._engine.approvals.requests if row.gate == gate.id)
            changes = edit(
                tool=shown.tool, schema=shown.schema, path=shown.path, effect=shown.effect,
                args=shown.args, new_args={**shown.args, "parts": [*shown.args["parts"], {"n": 9}]},
            )  # fmt: skip
        result = {"n": [1, 1.0]} if verdict in (Verdict.ANSWER, Verdict.HAPPENED) else None
        by = "" if verdict is Verdict.EXPIRE else "bea"
        return Decision(verdict=verdict, by=by, reason="as told", result=result, edit=changes)

    def compare_state(
        self, loaded: LoadedRun, _claim: RunClaim, stored: StoredRun, __: object
    ) -> None:
        now = initial(stored.run)
        for _position, body, mac, *_ in stored.entries:
            entry = decode_entry(body)
            now = step(now, entry.events, head=mac, at=entry.at)
        self.wrong += differences(loaded.now, now, "state")

    def compare_conversation(
        self, conversation: list[ModelMessage], spec: AgentSpec, run: UUID, frame: str,
        messages: tuple[dict[str, Any], ...], instructions: str, calls: tuple[Call, ...],
    ) -> None:  # fmt: skip
        if spec is BOSS:  # that of the helper is not kept
            again = to_provider(spec, messages, [], instructions, calls)
            self.wrong += differences(conversation, again, "conversation")


@pytest.fixture
def processes(
    by_hand: None, everything_permitted: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Processes]:
    with engine_of(registry_of(BOSS, HELPER)) as engine:
        processes = Processes(engine)
        around(monkeypatch, claim, "_load", after=processes.compare_state)
        around(monkeypatch, call, "conversation_of", after=processes.compare_conversation)
        yield processes


CALLS = st.tuples(
    st.sampled_from(["work", "work", "write", "helper"]),
    st.sampled_from([False, False, True]),
    st.integers(0, 3),
)
VERDICTS = ["approve", "approve", "edit", "deny", "request_changes", "answer", "expire"]
ACTS = st.sampled_from([*VERDICTS, "message", "ask", "pause", "resume"])


@settings(
    max_examples=10,
    phases=[Phase.explicit, Phase.generate],  # a shorter run would tell no more, after minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    turns=st.lists(st.lists(CALLS, min_size=1, max_size=2), min_size=4, max_size=6),
    steps=st.lists(
        st.tuples(ACTS, st.sampled_from([0, 0, 1]), st.booleans()), min_size=8, max_size=12
    ),
)
def test_each_claim_loads_what_the_entries_lead_to(
    processes: Processes,
    turns: list[list[tuple[str, bool, int]]],
    steps: list[tuple[str, int, bool]],
) -> None:
    KEPT.clear()
    TURNS[:] = turns
    run = processes.start()
    row = processes.advance(run, 0, forgets=False)
    for act, worker, forgets in steps:
        if row.status in ENDED:
            break
        with suppress(GateNotOpen):
            processes.act(run, act)
        row = processes.advance(run, worker, forgets=forgets)
    assert processes.wrong == []
    assert "Error" not in (row.reason or "")
    assert row.status != "quarantined", row.reason
