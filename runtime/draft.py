"""What the next commit will say: events added so far, and everything that must be written with them."""

from collections.abc import Callable
from typing import assert_never
from uuid import UUID, uuid4

from runtime.core.continuation import CallState, Continuation, FrameState, Pending
from runtime.core.decisions import GateKind
from runtime.core.effects import (
    AskModel,
    CloseFrame,
    Effect,
    EndRun,
    JudgeCall,
    OpenDoubt,
    OpenFrame,
    StartTool,
)
from runtime.core.events import (
    Completed,
    Event,
    Failed,
    FrameClosed,
    FrameOpened,
    GateDecided,
    GateOpened,
    ToolStarted,
)
from runtime.core.ids import ROOT
from runtime.core.reducer import evolve, plan
from runtime.judging import Judge, Judged
from runtime.ports import ActionPicture, EffectHandler
from runtime.signals import GateDecidedSignal

Work = AskModel | StartTool


class Draft:
    """Grows from a committed state. `reserve` is asked for a slot before any work is written down."""

    def __init__(
        self, base: Continuation, handler: EffectHandler, judge: Judge, reserve: Callable[[], bool]
    ) -> None:
        self.now = base
        self.events: list[Event] = []
        self.work: list[Work] = []
        self.pictures: list[ActionPicture] = []
        self.taken: list[UUID] = []
        self.signals: list[int] = []
        self._handler = handler
        self._judge = judge
        self._reserve = reserve
        self._opened: set[UUID] = set()

    @property
    def opened(self) -> tuple[Pending, ...]:
        return tuple(pending for pending in self.now.pending if pending.gate in self._opened)

    def add(self, event: Event) -> None:
        self.now = evolve(self.now, event)
        self.events.append(event)

    def take(self, signal: GateDecidedSignal) -> None:
        """Take a signal up once; one whose gate is not waited for changes nothing."""
        if signal.id in self.signals:
            return
        self.signals.append(signal.id)
        for pending in self.now.pending:
            if pending.gate == signal.gate:
                self.taken.append(signal.gate)
                self.add(_decided(pending, signal))

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
                self._doubt(effect)
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
        call = self.now.call(effect.frame, effect.call)
        if call.state is CallState.ADMITTED:
            changed = self._judge.second_look(self.now, effect.frame, effect.call)
            if changed is not None:
                self._record(changed)
                return
        else:
            self._judge.confirm(call)
        if self._reserve():
            self.add(ToolStarted(frame=effect.frame, call=effect.call, attempt=effect.attempt))
            self.work.append(effect)

    def _doubt(self, effect: OpenDoubt) -> None:
        terms = self.now.call(effect.frame, effect.call).terms
        assert terms is not None  # a call is judged before it is started
        event = GateOpened(
            gate=uuid4(),
            kind=GateKind.IN_DOUBT,
            frame=effect.frame,
            call=effect.call,
            terms=terms,
        )
        self._record(Judged(event=event))

    def _close(self, effect: CloseFrame) -> FrameClosed:
        frame = self.now.frame(effect.frame)
        answered = frame.state is FrameState.ANSWERED
        return FrameClosed(
            frame=frame.id,
            outcome="answered" if answered else "failed",
            content=frame.outcome or "",
        )

    def _end(self) -> Completed | Failed:
        root = self.now.frame(ROOT)
        if root.state is FrameState.ANSWERED:
            return Completed(output=root.outcome or "")
        return Failed(error=root.outcome or "")


def _decided(pending: Pending, signal: GateDecidedSignal) -> GateDecided:
    return GateDecided(
        gate=pending.gate,
        frame=pending.frame,
        call=pending.call,
        verdict=signal.decision.verdict,
        by=signal.decision.by,
        reason=signal.decision.reason,
    )
