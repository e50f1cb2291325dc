"""Drives one run in memory with the engine's own rules: what it plans, judges, retries and recovers.

What the engine has in Postgres is here a list of journal entries in their stored form, and the state
is always made of what was written: after a crash from the whole journal, after a wait at a gate from
the continuation's JSON. Real are the handlers (schemas, sentences, tools, models), `Draft` and `Judge`;
people, time and death are the test's to play. Effects run one after the other, in the order they are
planned; the engine runs them at the same time.
"""

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from django.db import connection, transaction
from django.test import override_settings

from agents import inputs
from agents.gateway.provider import SCRIPTED
from agents.handlers import Handler
from agents.registry import Registry, family
from agents.spec import AgentSpec
from agents.testing import surroundings
from agents.testing.gatekeeper import Gatekeeper
from agents.testing.models import Model, with_models
from agents.testing.transcript import lines_of
from runtime.coordinator import not_started
from runtime.core.codec import decode_continuation, decode_entry, encode_continuation, encode_entry
from runtime.core.continuation import Phase, status_of
from runtime.core.decisions import VERDICTS, Decision, EffectClass, GateKind, Verdict
from runtime.core.effects import AskModel, StartTool
from runtime.core.events import Event, RunStarted
from runtime.core.replay import Entry, initial, recover, step
from runtime.draft import Draft, Work
from runtime.executor import event_of, perform, request_for
from runtime.judging import Judge
from runtime.ports import ActionPicture, ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.signals import CancelSignal, GateDecidedSignal, Signal
from runtime.transactional import rolled_back

REQUESTER, DECIDER = "ada", "bea"
BEGINNING = datetime(2030, 1, 1, 9, tzinfo=UTC)
CHANCE = 0.5  # where in its bounds each wait between attempts lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One call of a tool that was really made. `outcome` is None if the worker died before it was kept."""

    agent: str
    tool: str
    args: dict[str, Any]
    key: str
    attempt: int
    outcome: Outcome | None


def drive(
    agent: AgentSpec,
    input: Any,
    *,
    model: Model | None = None,
    models: Mapping[str, Model] | None = None,
    crash_before: Sequence[str] = (),
    crash_after: Sequence[str] = (),
) -> "Flow":
    """Start a run of `agent` and take it as far as it goes without people. Raises InvalidInput.

    `model` plays the agent's model in place of its own, `models` those of any agents by name: a script,
    or a list of replies. Models of providers are never asked. `crash_before` and `crash_after` name tools:
    the worker dies once for each, after the intent to call it is written and before the call, or after
    the call and before its result is written; another worker takes over.
    """
    chosen = dict(models or {}) | ({} if model is None else {agent.name: model})
    flow = Flow(with_models(agent, chosen), chosen, crash_before, crash_after)
    flow.start(input)
    return flow


class Flow:
    """One run, at rest: it waits at `gates` or has ended. `calls` are the calls that tools really got."""

    def __init__(
        self,
        agent: AgentSpec,
        models: Mapping[str, Model],
        crash_before: Sequence[str],
        crash_after: Sequence[str],
    ) -> None:
        self.calls: list[Made] = []
        self.journal: list[str] = []
        self.now = initial(uuid.uuid4())
        self.clock = BEGINNING
        self._models = models
        self._deaths = {"before": list(crash_before), "after": list(crash_after)}
        self._gatekeeper = Gatekeeper()
        self._ready: deque[Work] = deque()
        self._signals = 0
        self._load(agent)

    # What happened

    @property
    def status(self) -> str:
        return status_of(self.now, held=False)

    @property
    def output(self) -> str | None:
        """What the agent answered, None as long as it did not."""
        return self.now.outcome if self.now.phase is Phase.COMPLETED else None

    @property
    def reason(self) -> str | None:
        """Why the run failed or was cancelled."""
        return self.now.outcome if self.now.phase in (Phase.FAILED, Phase.CANCELLED) else None

    @property
    def gates(self) -> tuple[ActionPicture, ...]:
        """What people are asked at the open gates: tool, args, sentence, risk, path, digest and all."""
        return tuple(self._gatekeeper.shown[pending.gate] for pending in self.now.pending)

    @property
    def gate(self) -> ActionPicture:
        """The one open gate. Raises AssertionError if there is none, or another."""
        return self._gate(None)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything in the journal, in order."""
        return tuple(event for text in self.journal for event in decode_entry(text).events)

    @property
    def transcript(self) -> tuple[str, ...]:
        return lines_of(self.events)

    def __str__(self) -> str:
        return "\n".join(self.transcript)

    # What people and time do

    def start(self, input: Any) -> None:
        """Once, at the beginning; see drive."""
        inputs.check(self._agent.input_schema, input)
        self._advance(RunStarted(agent=self._agent.name, input=input, requester=REQUESTER))
        self._go_on()

    def approve(self, tool: str | None = None) -> Self:
        """Say yes at the one open gate, or at the one of `tool`, and take the run further."""
        return self._decide(Verdict.APPROVE, tool)

    def deny(self, reason: str, tool: str | None = None) -> Self:
        return self._decide(Verdict.DENY, tool, reason=reason)

    def settle(
        self,
        verdict: Verdict | str,
        *,
        result: Any = None,
        reason: str = "",
        tool: str | None = None,
    ) -> Self:
        """Say of a call in doubt that it `happened` and returned `result`, or to `run_again` or `give_up`."""
        return self._decide(Verdict(verdict), tool, reason=reason, result=result)

    def expire(self, tool: str | None = None) -> Self:
        """Let time pass until nobody may decide any more: the call is denied by time."""
        gate = self._gate(tool)
        assert gate.expires_at is not None, "a call in doubt does not expire"
        self.clock = max(self.clock, gate.expires_at)
        self._expire()
        return self._go_on()

    def cancel(self, reason: str) -> Self:
        """End the run, as its requester may."""
        self._signals += 1
        self._advance(CancelSignal(id=self._signals, by=REQUESTER, reason=reason))
        return self._go_on()

    def deploy(self, agent: AgentSpec) -> Self:
        """From now on workers have this code, as after a release while the run waits."""
        self._load(with_models(agent, self._models))
        return self

    # What the engine does

    def _load(self, agent: AgentSpec) -> None:
        known = {one.name: one for one in family(agent)}
        surroundings.prepare(secrets=any(one.keeps_secrets for one in known.values()))
        self._agent = agent
        self._handler = Handler(Registry(agents=known))
        self._judge = Judge(
            handler=self._handler, gatekeeper=self._gatekeeper, clock=lambda: self.clock
        )

    def _gate(self, tool: str | None) -> ActionPicture:
        found = [gate for gate in self.gates if tool in (None, gate.tool)]
        waits = ", ".join(gate.tool for gate in self.gates) or "nothing"
        assert len(found) == 1, f"not one gate of {tool or 'any tool'}; waiting: {waits}\n{self}"
        return found[0]

    def _decide(
        self, verdict: Verdict, tool: str | None, *, reason: str = "", result: Any = None
    ) -> Self:
        gate = self._gate(tool)
        possible = VERDICTS[gate.kind]
        assert verdict in possible, f"at this gate one can say {', '.join(possible)}"
        assert reason or verdict is not Verdict.DENY, "to deny needs a reason"
        if verdict is Verdict.HAPPENED and gate.result_schema is not None:
            inputs.check(gate.result_schema, result, where="result")
        if gate.kind is GateKind.IN_DOUBT and gate.not_before is not None:
            self.clock = max(self.clock, gate.not_before)
        self._say(gate.gate, Decision(verdict=verdict, by=DECIDER, reason=reason, result=result))
        return self._go_on()

    def _expire(self) -> None:
        for pending in self.now.pending:
            if pending.expires_at is not None and pending.expires_at <= self.clock:
                reason = "nobody decided in time"
                self._say(pending.gate, Decision(verdict=Verdict.EXPIRE, by="", reason=reason))

    def _say(self, gate: uuid.UUID, decision: Decision) -> None:
        self._gatekeeper.said[gate] = decision
        self._signals += 1
        self._advance(GateDecidedSignal(id=self._signals, gate=gate, decision=decision))

    def _go_on(self) -> Self:
        """Until only people can; waits between attempts pass at once."""
        while not self.now.ended:
            if self.now.phase is Phase.CANCELLING:
                started = [work for work in self._ready if isinstance(work, StartTool)]
                self._ready.clear()
                self._advance(*(not_started(work) for work in started))
            elif self._ready:
                self._perform(self._ready.popleft())
            elif waits := self.now.waits():
                self.clock = max(self.clock, min(wait.until for wait in waits))
                self._expire()
                self._advance()
            else:
                break
        self.now = decode_continuation(encode_continuation(self.now))
        return self

    def _advance(self, *news: Event | Signal) -> None:
        """Take the news up, add what follows from it, and write all of it down as one entry."""
        draft = Draft(self.now, self._handler, self._judge, lambda: True, lambda: self.clock)
        for item in news:
            if isinstance(item, GateDecidedSignal | CancelSignal):
                draft.take(item)
            else:
                draft.add(item)
        draft.end_waits()
        draft.develop({work.frame for work in self._ready if isinstance(work, AskModel)})
        if not draft.events:
            return
        text = encode_entry(Entry(at=self.clock, events=tuple(draft.events)))
        self.journal.append(text)
        self.now = step(self.now, decode_entry(text).events, head="")
        self._gatekeeper.open(draft.pictures)
        self._ready.extend(draft.work)

    def _perform(self, work: Work) -> None:
        request = request_for(self.now, work)
        if self._dies("before", request):
            return self._take_over()
        dies = self._dies("after", request)
        outcome = self._outcome(request, kept=not dies)
        if isinstance(request, ToolRequest):
            self._note(request, None if dies else outcome)
        if dies:
            return self._take_over()
        return self._advance(event_of(self.now, request, outcome, at=self.clock, chance=CHANCE))

    def _dies(self, when: str, request: ModelRequest | ToolRequest) -> bool:
        """Whether the worker's time has come; each death is died once."""
        if not isinstance(request, ToolRequest) or request.tool not in self._deaths[when]:
            return False
        self._deaths[when].remove(request.tool)
        return True

    def _take_over(self) -> None:
        """Another worker finds the journal, and nothing of what the first one had in its memory."""
        self._ready.clear()
        self.now = initial(self.now.run)
        for text in self.journal:
            self.now = step(self.now, decode_entry(text).events, head="")
        self._advance(*recover(self.now))

    def _outcome(self, request: ModelRequest | ToolRequest, *, kept: bool) -> Outcome:
        with override_settings(ABEYANCE_MODEL=SCRIPTED):
            if isinstance(request, ModelRequest) or request.effect is not EffectClass.TRANSACTIONAL:
                return perform(self._handler, request)
            connection.ensure_connection()  # a test without a database hears of it here
            with transaction.atomic():
                outcome = rolled_back(perform(self._handler, request))
                if not kept or not isinstance(outcome, ToolResult):
                    transaction.set_rollback(True)
            return outcome

    def _note(self, request: ToolRequest, outcome: Outcome | None) -> None:
        self.calls.append(
            Made(
                agent=request.agent,
                tool=request.tool,
                args=request.args,
                key=request.key,
                attempt=request.attempt,
                outcome=outcome,
            )
        )
