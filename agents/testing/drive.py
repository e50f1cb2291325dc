"""`drive(agent, input)`: a run in memory, with methods for the actions of people and the passing of time.

The replies of its models are those that a test lists.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from agents.sdk import inputs
from agents.sdk.scripts import Reply, Script, Turn, find_own_answer, script
from agents.sdk.spec import AgentSpec
from agents.testing.worker import BEGINNING, MemoryWorker, ToolCall
from runtime.control.edit import edit, is_previewed
from runtime.core.documents import blobs
from runtime.core.documents.codec import decode_entry
from runtime.core.run import events as e
from runtime.core.run.continuation import Phase, derive_status
from runtime.core.run.events import (
    AgentChanged,
    Event,
    FrameOpened,
    QuestionAnswered,
    Remembered,
    RunStarted,
    WaitStarted,
)
from runtime.core.values import budgets
from runtime.core.values.enums import Decision, Edit, Verdict
from runtime.core.values.ids import ROOT
from runtime.core.values.verdicts import VERDICTS, VERDICTS_AT
from runtime.ports.approvals import ReviewSnapshot

REQUESTER, DECIDER = "ada", "bea"

AtGate = str | ReviewSnapshot | None  # a tool with one open gate, one of `gates`, or the only gate


ScriptedReply = Reply | Callable[[Turn], Reply]
ScriptedModel = Script | Sequence[ScriptedReply]


class NoReplyLeft(Exception):
    """The model was called more often than the test listed replies."""


class NoScript(Exception):
    """The agent names only providers' models, which a test does not call."""


class Flow:
    """One run that executes nothing now: it waits at its `gates`, waits for a time or event (`waits`), or has ended."""

    def __init__(self, worker: MemoryWorker, models: Mapping[str, ScriptedModel]) -> None:
        self._worker = worker
        self._models = models

    # Results

    @property
    def run(self) -> str:
        """Return the run's id, the first part of every idempotency key."""
        return str(self._worker.now.run)

    @property
    def status(self) -> str:
        """The status of the run."""
        return derive_status(self._worker.now, leased=False)

    @property
    def output(self) -> Any:
        """The agent's answer: a text, or JSON if its result is typed. None until it has answered."""
        now = self._worker.now
        return now.outcome if now.phase is Phase.COMPLETED else None

    @property
    def reason(self) -> str | None:
        """Return why the run failed or was cancelled."""
        now = self._worker.now
        return now.outcome if now.phase in (Phase.FAILED, Phase.CANCELLED) else None

    @property
    def instructions(self) -> str | None:
        """The instructions that a function made for the root agent; None if its instructions are a text."""
        texts = [
            event.instructions
            for event in self.events
            if isinstance(event, FrameOpened | AgentChanged) and event.frame == ROOT
        ]
        return (texts or [""])[-1] or None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """List the calls that reached tools, every attempt of them."""
        return tuple(self._worker.calls)

    @property
    def gates(self) -> tuple[ReviewSnapshot, ...]:
        """List the open gates as reviewers see them: tool, args, sentence, risk, path, digest."""
        return tuple(self._worker.snapshots[pending.gate] for pending in self._worker.now.pending)

    @property
    def gate(self) -> ReviewSnapshot:
        """The one open gate. Raises AssertionError unless exactly one is open."""
        return self._gate(None)

    @property
    def waits(self) -> tuple[WaitStarted, ...]:
        """List the waiting calls: `event` and `match`, empty for a time alone, and `until`."""
        return self._worker.waiting()

    @property
    def clock(self) -> datetime:
        """Return the run's time, which passes only while the run waits."""
        return self._worker.clock

    @property
    def journal(self) -> tuple[str, ...]:
        """List the journal's entries."""
        return tuple(self._worker.journal)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events in the journal, in order."""
        return tuple(event for text in self.journal for event in decode_entry(text).events)

    @property
    def transcript(self) -> tuple[str, ...]:
        """Describe the run, one line for each important event."""
        return describe_events(self.events)

    def __str__(self) -> str:
        return "\n".join(self.transcript)

    # Actions of people, and time

    def approve(self, tool: AtGate = None, *, comment: str = "") -> Self:
        """Approve at the one open gate, or at the gate of `tool` or one of `gates`, and continue the run."""
        return self._decide(Verdict.APPROVE, tool, reason=comment)

    def deny(self, reason: str, tool: AtGate = None) -> Self:
        """Deny, with a reason for the model, and continue the run."""
        return self._decide(Verdict.DENY, tool, reason=reason)

    def request_changes(self, changes: str, tool: AtGate = None) -> Self:
        """Request these changes to the call, and continue the run. Its model reads the text."""
        return self._decide(Verdict.REQUEST_CHANGES, tool, reason=changes)

    def answer(self, result: Any, tool: AtGate = None) -> Self:
        """Give a result instead of the call, and continue the run."""
        return self._decide(Verdict.ANSWER, tool, result=result)

    def edit(self, changes: dict[str, Any], tool: AtGate = None) -> Self:
        """Approve the call with these arguments changed, as a person who saw the preview, and continue the run."""
        gate = self._gate(tool)
        changed = edit(
            tool=gate.tool,
            schema=gate.schema,
            path=gate.path,
            effect=gate.effect,
            args=gate.args,
            new_args={**gate.args, **changes},
        )
        if is_previewed(gate.preview):
            changed = replace(changed, preview=self._worker.preview_edit(gate, changed.args))
        return self._decide(Verdict.EDIT, tool, edit=changed)

    def ask(self, question: str, tool: AtGate = None) -> str:
        """Ask the agent about the call at the gate, which stays open. Return its answer, or why it gave none."""
        self._worker.ask(gate=self._gate(tool).gate, by=DECIDER, text=question)
        self._go_on()
        last = self.events[-1]
        return last.text if isinstance(last, QuestionAnswered) else getattr(last, "error", "")

    def settle(
        self,
        verdict: Verdict | str,
        *,
        result: Any = None,
        reason: str = "",
        tool: AtGate = None,
    ) -> Self:
        """Resolve a call in doubt: it `happened` and returned `result`, or `run_again`, or `give_up`."""
        return self._decide(Verdict(verdict), tool, reason=reason, result=result)

    def go_on(self, **granted: Any) -> Self:
        """Continue a stopped agent. At a limit gate, pass the increase: `turns=5`, None for no limit."""
        gate = self._gate(None)
        if gate.kind.is_limit:
            budgets.read_granted(
                granted, {budgets.NAMES[row["limit"]] for row in gate.args["limits"]}
            )
        return self._decide(Verdict.CONTINUE, None, result=granted or None)

    def stop(self, reason: str) -> Self:
        """End the run of a stopped agent."""
        return self._decide(Verdict.STOP, None, reason=reason)

    def expire(self, tool: AtGate = None) -> Self:
        """Let time pass until the gate expires, which denies its call."""
        gate = self._gate(tool)
        assert gate.expires_at is not None, "a call in doubt does not expire"
        self._worker.clock = max(self.clock, gate.expires_at)
        self._worker.expire()
        return self._go_on()

    def send(self, event: str, data: dict[str, Any], *, id: str = "e-1") -> Self:
        """Send an external event. Raise AssertionError if no call waits for it."""
        ended = self._worker.send(event, id, data)
        assert ended, f"nothing waits for {event} with {data}\n{self}"
        return self._go_on()

    def sleep(self) -> Self:
        """Let time pass until the first wait of a call ends."""
        assert self.waits, f"nothing waits for a time or an event\n{self}"
        self._worker.sleep()
        return self._go_on()

    def write(self, text: str) -> Self:
        """Send the agent a message as its requester. Its next model call includes it."""
        assert not self._worker.now.ended, f"the run is {self.status} already"
        self._worker.write(by=REQUESTER, text=text)
        return self._go_on()

    def cancel(self, reason: str) -> Self:
        """Cancel the run as its requester."""
        self._worker.cancel(by=REQUESTER, reason=reason)
        return self._go_on()

    def deploy(self, agent: AgentSpec) -> Self:
        """Deploy this agent, as a release does while the run waits."""
        self._worker.load(with_models(agent, self._models))
        return self

    def _gate(self, tool: AtGate) -> ReviewSnapshot:
        gates = [gate for gate in self.gates if tool in (None, gate.tool, gate)]
        waits = ", ".join(gate.tool for gate in self.gates) or "nothing"
        label = tool.tool if isinstance(tool, ReviewSnapshot) else tool or "any tool"
        assert len(gates) == 1, f"not one gate of {label}; waiting: {waits}\n{self}"
        return gates[0]

    def _decide(
        self,
        verdict: Verdict,
        tool: AtGate,
        *,
        reason: str = "",
        result: Any = None,
        edit: Edit | None = None,
    ) -> Self:
        gate = self._gate(tool)
        possible = VERDICTS_AT[gate.kind]
        assert verdict in possible, f"at this gate one can say {', '.join(possible)}"
        rule = VERDICTS[verdict]
        assert reason or not (gate.call and rule.needs_reason), f"to {verdict} needs a reason"
        if rule.carries == "result" and gate.result_schema is not None:
            inputs.check(gate.result_schema, result, root="result")
        if gate.kind.is_in_doubt and gate.not_before is not None:
            self._worker.clock = max(self.clock, gate.not_before)
        decision = Decision(verdict=verdict, by=DECIDER, reason=reason, result=result, edit=edit)
        self._worker.decide(gate.gate, decision)
        return self._go_on()

    def _go_on(self) -> Self:
        self._worker.go_on()
        return self


def drive(
    agent: AgentSpec,
    input: Any,
    *,
    model: ScriptedModel | None = None,
    models: Mapping[str, ScriptedModel] | None = None,
    business_key: str | None = None,
    memory: Sequence[tuple[Any, Any]] = (),
    crash_before: Sequence[str] = (),
    crash_after: Sequence[str] = (),
) -> "Flow":
    """Start a run of `agent`, and execute it until it waits for a person. Raise InvalidInput.

    `model` replaces the agent's own model, `models` those of any agents by name: each is a script, or a list of
    replies. Models of providers are never called. `memory` has the input and the answer of each earlier run of the
    thread that the run remembers. `crash_before` and `crash_after` name tools. The worker dies once for each: between
    its intent and the call, or between the call and its result. Another worker takes over.
    """
    scripts = dict(models or {}) | ({} if model is None else {agent.name: model})
    ready = with_models(agent, scripts)
    inputs.check(ready.input_schema, input)
    worker = MemoryWorker(ready, crash_before, crash_after)
    memories = build_earlier_texts(memory, agent=ready.name, by=REQUESTER)
    worker.remembered = {one.digest: text for one, text in memories}
    worker.advance(
        RunStarted(
            agent=ready.name,
            input=input,
            requester=REQUESTER,
            budget=budgets.NO_LIMITS,
            business_key=business_key,
            thread="thread" if memory else None,
            memory=tuple(one for one, _ in memories),
        )
    )
    worker.go_on()
    return Flow(worker, scripts)


def replies(*steps: ScriptedReply) -> Script:
    """Return a model that gives these replies in order. A function among them makes its reply.

    The conversation itself shows which reply is next, so a turn that is repeated after a crash gets the same reply
    again.
    """

    def model(messages: list[ModelMessage], info: AgentInfo) -> Reply:
        if (answer := find_own_answer(messages)) is not None:
            return answer
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number >= len(steps):
            raise NoReplyLeft(f"the test wrote {len(steps)} replies, and turn {number + 1} began")
        step = steps[number]
        return step if isinstance(step, ModelResponse) else script(step)(messages, info)

    return model


def build_earlier_texts(
    earlier: Sequence[tuple[Any, Any]], *, agent: str, by: str
) -> list[tuple[Remembered, str]]:
    """Return the texts of earlier runs, each of which is a pair of its input and its answer."""
    memories = []
    for number, (sent, answer) in enumerate(earlier, start=1):
        run = UUID(int=number)
        memories += [_remember(run, "asked", by, sent), _remember(run, "answered", agent, answer)]
    return memories


def describe_events(events: tuple[e.Event, ...]) -> tuple[str, ...]:
    """List the events of a run, oldest first."""
    return tuple(line for event in events for line in _describe_event(event))


def _remember(run: UUID, kind: str, by: str, value: Any) -> tuple[Remembered, str]:
    text = blobs.format_memory_text(value)
    digest = blobs.make_blob(blobs.encode_memory(run, kind, text)).digest
    is_asked = kind == "asked"
    entry = Remembered(
        run=run, kind="asked" if is_asked else "answered", by=by, at=BEGINNING, digest=digest
    )
    return entry, text


def _describe_event(event: e.Event) -> list[str]:
    match event:
        case e.FrameOpened():
            return [f"{event.agent} begins with {_format_json(event.input)}"]
        case e.AgentChanged():
            parts = ", ".join(change.part for change in event.changes)
            return [f"{event.frame} continues under another version: {parts}"]
        case e.ModelReplied():
            lines = [f"model: {event.text}"] if event.text else []
            return lines + [f"model: {call.tool} {_format_json(call.args)}" for call in event.calls]
        case e.Compacted():
            return [f"summed up: {event.summary}"]
        case e.ModelFailed():
            return [f"model failed: {event.error}"]
        case e.MessageReceived():
            return [f"{event.by} wrote: {event.text}"]
        case e.WaitStarted():
            condition = (
                f"event {event.event} with {_format_json(event.match)}" if event.event else "time"
            )
            return [f"{event.call} waits for {condition} until {event.until.isoformat()}"]
        case e.WaitEnded() if event.outcome != "again":
            return [f"{event.call} {event.outcome}: {_format_json(event.result)}"]
        case e.CallPreviewed(preview=preview):
            detail = (
                f": {_format_json(preview.shown)}"
                if preview.material
                else f" not: {preview.missing}"
            )
            return (
                [f"{event.call} previewed{detail}"] if preview.material or preview.missing else []
            )
        case e.CallRefused():
            return [f"{event.call} refused: {event.reason}"]
        case e.GateOpened():
            return [f"{event.call} waits for a person ({event.kind})"]
        case e.GateDecided():
            detail = f": {event.reason}" if event.reason else ""
            return [f"{event.call} {event.by or 'time'} said {event.verdict}{detail}"]
        case e.ToolReturned(stored=e.BlobRef() as stored):
            return [f"{event.call} returned {stored.size} bytes: {stored.preview}…"]
        case e.ToolReturned():
            return [f"{event.call} returned {_format_json(event.result)}"]
        case e.ToolFailed() | e.OutcomeUnknown() | e.RetryScheduled():
            return [f"{event.call or 'model'} {event.type}: {event.error}"]
        case e.Completed():
            text = event.output if isinstance(event.output, str) else _format_json(event.output)
            return [f"completed: {text}"]
        case e.Failed():
            return [f"failed: {event.error}"]
        case e.Cancelled():
            return [f"cancelled: {event.reason}"]
        case _:
            return []


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def with_models(agent: AgentSpec, models: Mapping[str, ScriptedModel]) -> AgentSpec:
    """Return the agent with these models, by name, for itself and its sub-agents."""
    children = tuple(with_models(child, models) for child in agent.subagents)
    model = models.get(agent.name, agent.model)
    if model is None:
        raise NoScript(f"{agent.name} has no script: give the test one, as drive(…, models={{…}})")
    return replace(agent, subagents=children, model=model if callable(model) else replies(*model))
