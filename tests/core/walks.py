"""Seeded walks through the core: a world that answers every planned effect at random, and keeps the history."""

import random
from datetime import UTC, datetime
from uuid import UUID

from runtime.core.continuation import CallState, Continuation, FrameState, Phase
from runtime.core.decisions import VERDICTS, EffectClass, GateKind, Verdict
from runtime.core.effects import (
    AskModel,
    CancelRun,
    CloseFrame,
    Effect,
    EndRun,
    JudgeCall,
    OpenDoubt,
    OpenFrame,
    StartTool,
)
from runtime.core.events import (
    CallAdmitted,
    CallRefused,
    Cancelled,
    Cancelling,
    Completed,
    Event,
    Failed,
    FrameClosed,
    FrameOpened,
    GateClosed,
    GateDecided,
    GateOpened,
    ModelFailed,
    ModelReplied,
    Proposal,
    RunStarted,
    Terms,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
)
from runtime.core.ids import ROOT, depth_of
from runtime.core.planning import plan
from runtime.core.reducer import evolve
from runtime.core.replay import initial, recover
from runtime.core.retries import lost, unanswered, uncertain, undone

MAX_EVENTS = 400
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Walk:
    """One run from its start to its end, or to where only an in-doubt gate is left."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = initial(UUID(int=self.random.getrandbits(128)))
        self.states: list[Continuation] = [self.now]
        self.history: list[Event] = []
        self._add(
            RunStarted(agent="agent-0", input={"seed": seed, "ä": [1.5, None]}, requester="ada")
        )
        while len(self.history) < MAX_EVENTS and (options := self._options()):
            self._add(self.random.choice(options))

    def _add(self, event: Event) -> None:
        self.now = evolve(self.now, event)
        self.history.append(event)
        self.states.append(self.now)

    def _options(self) -> list[Event]:
        """Everything that could happen next: what is planned, an outcome, a decision, a crash."""
        options = [event for effect in plan(self.now) for event in self._answers(effect)]
        for frame in self.now.frames.values():
            for call in frame.calls:
                if call.state is CallState.STARTED:
                    options += [
                        ToolReturned(
                            frame=frame.id, call=call.id, attempt=call.attempt, result={"ok": True}
                        ),
                        ToolFailed(frame=frame.id, call=call.id, attempt=call.attempt, error="no"),
                        uncertain(frame.id, call, "it raised", at=AT, chance=0.5),
                        undone(frame.id, call, "busy", after=None, at=AT, chance=0.5),
                        lost(frame.id, call),
                    ]
        options += [WaitEnded(frame=wait.frame, call=wait.call) for wait in self.now.waits()]
        options += [
            GateDecided(
                gate=pending.gate,
                frame=pending.frame,
                call=pending.call,
                verdict=verdict,
                by="bea",
                reason="because",
            )
            for pending in self.now.pending
            for verdict in (*VERDICTS[pending.kind], Verdict.EXPIRE)
            if pending.kind is GateKind.APPROVAL or verdict is not Verdict.EXPIRE
        ]
        if self.random.random() < 0.05:
            options += recover(self.now)
        if self.now.phase is Phase.CANCELLING:
            options += [
                GateClosed(gate=one.gate, frame=one.frame, call=one.call, reason="over")
                for one in self.now.pending
            ]
        elif self.now.phase is Phase.STARTED and self.random.random() < 0.003:
            options = [Cancelling(by="ada", reason="enough")]
        return options

    def _answers(self, effect: Effect) -> list[Event]:
        match effect:
            case OpenFrame():
                return [
                    FrameOpened(
                        frame=effect.frame,
                        agent=effect.agent,
                        fingerprint="sha256:f",
                        prompt="sha256:p",
                        plan=self.random.choice([None, ("first", "then")]),
                        input=effect.input,
                        parent=effect.parent,
                        call=effect.call,
                    )
                ]
            case AskModel():
                return self._replies(effect.frame)
            case JudgeCall():
                return self._judgements(effect)
            case StartTool():
                return self._starts(effect)
            case OpenDoubt():
                terms = self.now.call(effect.frame, effect.call).terms
                assert terms is not None
                return [self._gate(GateKind.IN_DOUBT, effect.frame, effect.call, terms)]
            case CloseFrame():
                frame = self.now.frame(effect.frame)
                answered = frame.state is FrameState.ANSWERED
                return [
                    FrameClosed(
                        frame=frame.id,
                        outcome="answered" if answered else "failed",
                        content=frame.outcome or "",
                    )
                ]
            case CancelRun():
                return [Cancelling(by="", reason=effect.reason)]
            case EndRun() if self.now.phase is Phase.CANCELLING:
                return [Cancelled(reason="enough") if self.now.cancelled_by else Failed(error="no")]
            case EndRun():
                root = self.now.frame(ROOT)
                if root.state is FrameState.ANSWERED:
                    return [Completed(output=root.outcome or "")]
                return [Failed(error=root.outcome or "")]

    def _starts(self, effect: StartTool) -> list[Event]:
        """Mostly its start; now and then what was approved is not what would run any more."""
        call = self.now.call(effect.frame, effect.call)
        if call.gate and self.random.random() < 0.1:
            assert call.terms is not None
            return [
                self._gate(GateKind.APPROVAL, effect.frame, effect.call, call.terms),
                CallRefused(frame=effect.frame, call=effect.call, reason="gone"),
            ]
        return [ToolStarted(frame=effect.frame, call=effect.call, attempt=effect.attempt, at=AT)]

    def _replies(self, frame: str) -> list[Event]:
        turn = self.now.frame(frame).turn
        if turn >= 4:
            return [self._reply(frame, 0)]
        if self.random.random() < 0.05:
            holder = self.now.frame(frame)
            again = self.random.random() < 0.5
            return [
                unanswered(holder, "overloaded", again=again, after=1.0, at=AT, chance=0.5),
                ModelFailed(frame=frame, error="no"),
            ]
        return [self._reply(frame, self.random.choice([0, 1, 2, 2, 3]))]

    def _reply(self, frame: str, calls: int) -> ModelReplied:
        return ModelReplied(
            frame=frame,
            reply={"parts": [calls]},
            text="" if calls else f"done by {frame}",
            calls=tuple(
                Proposal(tool=f"tool_{n}", args={"n": n, "x": "é\u202e"}) for n in range(calls)
            ),
            usage={"input_tokens": 3, "output_tokens": 2},
        )

    def _judgements(self, effect: JudgeCall) -> list[Event]:
        may_nest = depth_of(effect.frame) < 3
        terms = Terms(
            effect=self.random.choice(list(EffectClass)),
            digest="sha256:d",
            deadline=30.0,
            delegate="agent-n" if may_nest and self.random.random() < 0.4 else None,
        )
        judgements: list[Event] = [
            CallAdmitted(frame=effect.frame, call=effect.call, terms=terms),
            self._gate(GateKind.APPROVAL, effect.frame, effect.call, terms),
            CallRefused(frame=effect.frame, call=effect.call, reason="no such tool"),
        ]
        return judgements[: 3 if self.random.random() < 0.1 else 2]

    def _gate(self, kind: GateKind, frame: str, call: str, terms: Terms) -> GateOpened:
        gate = UUID(int=self.random.getrandbits(128))
        return GateOpened(gate=gate, kind=kind, frame=frame, call=call, terms=terms)
