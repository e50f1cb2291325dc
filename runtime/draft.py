"""What the next commit will say: events added so far, and everything that must be written with them."""

from collections.abc import Callable
from datetime import datetime
from typing import assert_never
from uuid import UUID

from runtime.core.continuation import Continuation, FrameState, Pending, Phase
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
    ToolStarted,
    WaitEnded,
)
from runtime.core.ids import ROOT
from runtime.core.planning import plan
from runtime.core.reducer import evolve
from runtime.judging import Judge, Judged
from runtime.ports import ActionPicture, EffectHandler
from runtime.signals import CancelSignal, GateDecidedSignal, Signal

Work = AskModel | StartTool


class Draft:
    """Grows from a committed state. `reserve` is asked for a slot before any work is written down."""

    def __init__(
        self,
        base: Continuation,
        handler: EffectHandler,
        judge: Judge,
        reserve: Callable[[], bool],
        clock: Callable[[], datetime],
    ) -> None:
        self.now = base
        self.events: list[Event] = []
        self.work: list[Work] = []
        self.pictures: list[ActionPicture] = []
        self.taken: list[UUID] = []
        self.closed: list[UUID] = []
        self.signals: list[int] = []
        self._handler = handler
        self._judge = judge
        self._reserve = reserve
        self._clock = clock
        self._opened: set[UUID] = set()

    @property
    def opened(self) -> tuple[Pending, ...]:
        return tuple(pending for pending in self.now.pending if pending.gate in self._opened)

    def add(self, event: Event) -> None:
        self.now = evolve(self.now, event)
        self.events.append(event)

    def take(self, signal: Signal) -> None:
        """Take a signal up once; one whose gate is not waited for, or that comes too late, changes nothing.

        Raises Tampered for a decision that nobody made.
        """
        if signal.id in self.signals:
            return
        match signal:
            case GateDecidedSignal():
                self._take_decision(signal)
            case CancelSignal():
                self.cancel(by=signal.by, reason=signal.reason)
            case _ as never:
                assert_never(never)
        # Last: what fails on the way, as vouching does without Postgres, is taken up again.
        self.signals.append(signal.id)

    def cancel(self, *, by: str, reason: str) -> None:
        """Start nothing new, and close every gate of the run."""
        if self.now.phase is not Phase.STARTED:
            return
        self.add(Cancelling(by=by, reason=reason))
        for pending in self.now.pending:
            self.closed.append(pending.gate)
            self.add(
                GateClosed(gate=pending.gate, frame=pending.frame, call=pending.call, reason=reason)
            )

    def end_waits(self) -> None:
        """Let every retry go on whose time has come."""
        for wait in self.now.waits():
            if wait.until <= self._clock():
                self.add(WaitEnded(frame=wait.frame, call=wait.call))

    def develop(self, busy: set[str]) -> None:
        """Add what follows without the outside until nothing does. `busy` frames await their model."""
        asked = {work.frame for work in self.work if isinstance(work, AskModel)} | busy
        while True:
            count = len(self.events)
            for effect in plan(self.now):
                if isinstance(effect, AskModel):
                    if effect.frame not in asked and self._reserve():
                        asked.add(effect.frame)
                        self.work.append(effect)
                else:
                    self._follow(effect)
            if len(self.events) == count:
                return

    def _follow(self, effect: Effect) -> None:
        match effect:
            case OpenFrame():
                self.add(self._frame(effect))
            case JudgeCall():
                self._record(self._judge.judge(self.now, effect.frame, effect.call))
            case StartTool():
                self._start(effect)
            case OpenDoubt():
                self._record(self._judge.doubt(self.now, effect.frame, effect.call))
            case CancelRun():
                self.cancel(by="", reason=effect.reason)
            case CloseFrame():
                self.add(self._close(effect))
            case EndRun():
                self.add(self._end())
            case AskModel():
                pass
            case _ as never:
                assert_never(never)

    def _frame(self, effect: OpenFrame) -> FrameOpened:
        facts = self._handler.agent(effect.agent)
        return FrameOpened(
            frame=effect.frame,
            agent=effect.agent,
            fingerprint=facts.fingerprint,
            prompt=facts.prompt,
            plan=facts.plan,
            input=effect.input,
            parent=effect.parent,
            call=effect.call,
        )

    def _record(self, judged: Judged) -> None:
        self.add(judged.event)
        if isinstance(judged.event, GateOpened):
            self._opened.add(judged.event.gate)
        if judged.picture is not None:
            self.pictures.append(judged.picture)

    def _start(self, effect: StartTool) -> None:
        """Look once more, then write the intent down if it can be acted on at once."""
        changed = self._judge.second_look(self.now, effect.frame, effect.call)
        if changed is not None:
            self._record(changed)
            return
        if self._reserve():
            self.add(
                ToolStarted(
                    frame=effect.frame, call=effect.call, attempt=effect.attempt, at=self._clock()
                )
            )
            self.work.append(effect)

    def _close(self, effect: CloseFrame) -> FrameClosed:
        frame = self.now.frame(effect.frame)
        answered = frame.state is FrameState.ANSWERED
        return FrameClosed(
            frame=frame.id,
            outcome="answered" if answered else "failed",
            content=frame.outcome or "",
        )

    def _end(self) -> Completed | Failed | Cancelled:
        if self.now.phase is Phase.CANCELLING:
            reason = self.now.outcome or ""
            return Cancelled(reason=reason) if self.now.cancelled_by else Failed(error=reason)
        root = self.now.frame(ROOT)
        if root.state is FrameState.ANSWERED:
            return Completed(output=root.outcome or "")
        return Failed(error=root.outcome or "")

    def _take_decision(self, signal: GateDecidedSignal) -> None:
        for pending in self.now.pending:
            if pending.gate == signal.gate:
                self._judge.vouch(signal)
                self.taken.append(signal.gate)
                self.add(_decided(pending, signal))


def _decided(pending: Pending, signal: GateDecidedSignal) -> GateDecided:
    return GateDecided(
        gate=pending.gate,
        frame=pending.frame,
        call=pending.call,
        verdict=signal.decision.verdict,
        by=signal.decision.by,
        reason=signal.decision.reason,
        result=signal.decision.result,
    )
