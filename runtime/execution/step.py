"""Builds the next step from received messages, with everything that follows without I/O except through ports."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import assert_never
from uuid import UUID

from runtime.core.run.accounting import has_limits, list_exhausted_limits, may_start_effect
from runtime.core.run.continuation import (
    Call,
    Continuation,
    FrameState,
    Pending,
    Phase,
    list_calls_in_doubt,
)
from runtime.core.run.events import (
    CallAdmitted,
    CallRefused,
    Cancelling,
    Event,
    FrameClosed,
    FrameOpened,
    GateClosed,
    GateDecided,
    MessageReceived,
    ModelFailed,
    Paused,
    QuestionFailed,
    Resumed,
    ToolStarted,
    WaitEnded,
)
from runtime.core.run.gates import (
    decide_gate,
    find_gate_of_call,
    is_blocked_by_gate,
    open_inquiry,
    read_grant,
)
from runtime.core.run.planning import (
    AnswerInquiry,
    CallModel,
    CancelRun,
    CheckCall,
    CloseFrame,
    Command,
    EndRun,
    FailFrame,
    OpenFrame,
    OpenInDoubt,
    StartTool,
    StartWait,
    plan,
)
from runtime.core.run.reducer import evolve
from runtime.core.values.budgets import InvalidBudget
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.json_values import hash_value
from runtime.core.values.texts import clean_text
from runtime.core.values.verdicts import STARTS_CALL_UNCHANGED, VERDICTS
from runtime.errors import InvalidInput, Tampered
from runtime.execution import step_events
from runtime.execution.admission.admit import Admission
from runtime.execution.admission.gates import (
    AdmissionResult,
    explain_earlier_denial,
    explain_repetition,
    needs_recheck,
    open_frame_gate,
    with_revision,
)
from runtime.execution.admission.versions import (
    VersionChanges,
    build_agent_changed,
    find_prompt_time,
    list_version_gates,
    open_version_gate,
)
from runtime.execution.effects.outcomes import build_arrival_event
from runtime.execution.effects.running import RunWork
from runtime.execution.worker import RunPauses, repeat_until_reachable
from runtime.ports.agents import VersionChange
from runtime.ports.effects import EffectHandler
from runtime.store.steps import PreviewCall, Records, Work
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.signals import (
    CancelSignal,
    EventSignal,
    ExtensionSignal,
    GateDecidedSignal,
    InquirySignal,
    MessageSignal,
    PauseSignal,
    ResumeSignal,
    Signal,
)


class StepBuilder:
    """Builds on a committed state. `reserve` reserves a slot before any work is recorded.

    Without `pauses`, as in tests of agents, an unreachable Postgres is not waited for.
    """

    def __init__(
        self,
        base: Continuation,
        handler: EffectHandler,
        admission: Admission,
        reserve: Callable[[Work], bool],
        clock: Callable[[], datetime],
        run_work: RunWork,
        pauses: RunPauses | None = None,
    ) -> None:
        self.now = base
        self.records = Records()
        self.pauses = pauses
        self._handler = handler
        self._admission = admission
        self._reserve = reserve
        self._clock = clock
        self._work = run_work
        self._previewing: set[tuple[str, str]] = set()  # calls that wait for their preview
        self._answering: set[UUID] = set()  # inquiries that wait for their answer
        self._unverified: dict[UUID, GateDecidedSignal] = {}  # approvals that the step consumes
        self._passed: set[UUID | None] = set()  # gates that an allowance decides in this step
        self._uses = defaultdict[UUID, int](int)  # by allowance

    def add(self, event: Event, closed: str = "") -> None:
        """Apply an event to the state, and record it. `closed` is as `Records.add` says."""
        self.now = evolve(self.now, self.records.add(event, closed))

    def apply_version_changes(self, version_changes: VersionChanges) -> None:
        """Continue every frame whose agent has changed with this process's version, or ask people first."""
        if self.now.phase is not Phase.STARTED or not (version_changes or self.now.pending):
            return
        for gate in list_version_gates(self.now):
            change = version_changes.get(gate.frame)
            if change is None or not change.asks or change.agent.fingerprint != gate.version:
                self._close_gate(gate, "the agent has changed once more")
        blocked = {gate.frame for gate in list_version_gates(self.now)}
        for frame, change in version_changes.items():
            if frame in blocked and change.asks:
                continue
            after, by = change.agent.fingerprint, ""
            if change.asks:
                by = self._admission.find_version_decider(self.now, frame, after)
            if change.asks and not by:
                self._record(open_version_gate(self.now, frame, change, self._clock()))
            elif not self._change_agent(frame, change, by):
                return

    @repeat_until_reachable
    def consume(self, signal: Signal) -> None:
        """Consume a signal. It changes nothing if its gate is not open or it comes too late.

        Raises Tampered for a decision that no person made.
        """
        if signal.id in self.records.signals:
            return
        match signal:
            case GateDecidedSignal():
                for pending in self.now.pending:
                    if pending.gate == signal.gate:
                        self._consume_decision(pending, signal)
            case CancelSignal():
                self.cancel(by=signal.by, reason=signal.reason)
            case PauseSignal():
                if self.now.phase is Phase.STARTED and self.now.paused is None:
                    self.add(Paused(by=signal.by, reason=signal.reason))
            case ResumeSignal():
                if self.now.is_paused:
                    self.add(Resumed(by=signal.by, reason=signal.reason))
            case MessageSignal():
                if self.now.phase is Phase.STARTED:
                    by, text, reviewer = signal.by, signal.text, signal.reviewer
                    cuts = signal.cuts
                    self.add(MessageReceived(by=by, text=text, reviewer=reviewer, cuts=cuts))
            case InquirySignal():
                if (question := step_events.receive_inquiry(self.now, signal)) is not None:
                    self.add(question)
            case ExtensionSignal():
                extension = self._admission.read_extension(signal)
                with suppress(IllegalTransition):  # the gate is closed, or this was received
                    evolve(self.now, extension)
                    self.add(extension)
            case EventSignal():
                if (end := step_events.receive_event(self.now, signal)) is not None:
                    self.add(end)
            case _ as never:
                assert_never(never)
        # Last: if an earlier line fails, as verification does without Postgres, the signal is consumed later.
        self.records.signals.append(signal.id)

    def receive_late(self, late: LateOutcomeRow, settling: Collection[UUID]) -> None:
        """Settle the call in doubt with its late outcome.

        A call that a person has settled or that was started again stays as it is. `settling` lists gates whose decision
        can still be undone: a person has settled those calls too.
        """
        for frame, call in list_calls_in_doubt(self.now):
            if (frame, call.id, call.attempt) != (late.frame, late.call, late.attempt):
                continue
            pending = find_gate_of_call(self.now, frame, call.id)
            gate = None if pending is None else pending.gate
            if call.started_at != late.started_at or gate in settling:
                return
            became = "returned its result" if late.outcome == "returned" else "reported its failure"
            reason = f"The call itself {became} late, so no person needs to settle it."
            self.add(build_arrival_event(late, gate), closed=reason)
            return

    def cancel(self, *, by: str, reason: str) -> None:
        """Start no new effect, and close every gate of the run."""
        if self.now.phase is not Phase.STARTED:
            return
        self.add(Cancelling(by=by, reason=reason))
        for pending in self.now.pending:
            self._close_gate(pending, reason)
        for wait in self.now.list_all_waiting():
            self.add(WaitEnded(frame=wait.frame, call=wait.call, outcome="closed"))

    def end_waits(self) -> None:
        """Start every retry whose time has come, and end every wait that is over."""
        if not self.now.waits():
            return
        for wait in self.now.retries():
            if wait.until <= self._clock():
                self.add(WaitEnded(frame=wait.frame, call=wait.call))
        for wait in self.now.waiting():
            if wait.until <= self._clock() and wait.call is not None:
                self.add(step_events.time_out_wait(self.now, wait.frame, wait.call))

    @repeat_until_reachable
    def plan_next(self) -> None:
        """Add everything that follows without I/O beside the run's work.

        A run that is ending waits for its models: their calls are stopped, and the partial replies are kept as
        evidence. Raises Tampered for an approval that no person gave.
        """
        busy = set[str]()  # frames that wait for their model
        if self._work.ready or self._work.running:
            busy = self._work.list_calling_frames()
            self._previewing |= self._work.list_open_previews()
            self._answering |= self._work.list_open_inquiries()
        calling = set(busy)
        for work in self.records.work:
            if isinstance(work, CallModel):
                calling.add(work.frame)
        frames: Collection[str] = ()
        while True:
            before = self.now
            if before.frames.keys() != frames:  # each frame may have limits
                frames, is_limited = before.frames.keys(), has_limits(before)
            checked: set[str] = set()  # frames whose proposed calls were checked together
            commands = plan(before)
            if calling:
                commands = tuple(
                    command
                    for command in commands
                    if not (isinstance(command, CallModel) and command.frame in calling)
                )
            if is_limited:
                at = self._clock()
                limits = list_exhausted_limits(before, commands, at)
                if limits:  # one gate for all that are exhausted and needed
                    reached, gate = step_events.open_limit_gate(before, limits, at)
                    for event in reached:
                        self.add(event)
                    self._record(gate)
            for command in commands:
                if (
                    self.now.pending
                    and not isinstance(command, CancelRun | EndRun)
                    and is_blocked_by_gate(self.now, command.frame)
                ):
                    continue  # by another part of this plan
                if isinstance(command, AnswerInquiry):
                    self._answer(
                        command, fits=not is_limited or may_start_effect(self.now, command, calling)
                    )
                    continue
                if is_limited and not may_start_effect(self.now, command, calling):
                    continue  # until running calls are settled
                if isinstance(command, CallModel):
                    hold = self._admission.open_hold(self.now, command.frame)
                    if hold is not None:  # because its agent asks for one
                        self._record(hold)
                    elif self._begin(command):
                        calling.add(command.frame)
                elif isinstance(command, CheckCall):
                    if command.frame not in checked:
                        checked.add(command.frame)
                        self._check_turn(command.frame, commands)
                elif not (isinstance(command, EndRun) and busy):
                    self._execute(command)
            if self.now is before:
                break
        # Also of calls that do not start now: no entry may record an approval that no person gave.
        for decided_gate, signal in tuple(self._unverified.items()):
            self._admission.verify_decision(signal)
            del self._unverified[decided_gate]

    def _execute(self, command: Command) -> None:
        match command:
            case OpenFrame():
                self._open_frame(command)
            case StartTool():
                call = self.now.call(command.frame, command.call)
                if call.credential:  # which is missing: it holds the frame
                    at = self._clock()
                    args = {"credential": call.credential, "tool": call.tool, "call": call.id}
                    hold = open_frame_gate(
                        self.now,
                        command.frame,
                        GateKind.HOLD,
                        reason=call.credential,
                        args=args,
                        at=at,
                    )
                    self._record(hold)
                elif self._may_start(command.frame, call) and self._reserve(command):
                    started = ToolStarted(
                        frame=command.frame,
                        call=command.call,
                        attempt=command.attempt,
                        at=self._clock(),
                    )
                    self.add(started)
                    self.records.work.append(command)
            case StartWait():
                if self._may_start(command.frame, self.now.call(command.frame, command.call)):
                    self.add(step_events.begin_wait(self.now, command, self._clock()))
            case OpenInDoubt():
                self._record(self._admission.open_in_doubt(self.now, command.frame, command.call))
            case CancelRun():
                self.cancel(by="", reason=command.reason)
            case FailFrame():
                self.add(ModelFailed(frame=command.frame, error=command.error))
            case CloseFrame():
                frame = self.now.frame(command.frame)
                closed = FrameClosed(
                    frame=frame.id,
                    outcome="answered" if frame.state is FrameState.ANSWERED else "failed",
                    content="" if frame.outcome is None else frame.outcome,
                )
                self.add(closed)
            case EndRun():
                self.add(step_events.end_run(self.now))
            case CallModel() | CheckCall() | AnswerInquiry():
                pass
            case _ as never:
                assert_never(never)

    def _open_frame(self, command: OpenFrame) -> None:
        """Open a frame with the input as its agent reads it. If that fails, refuse the call or end the run."""
        parent, call, at = command.parent, command.call, self._clock()
        if (
            parent is not None
            and call is not None
            and not self._may_start(parent, self.now.call(parent, call))
        ):
            return
        try:
            agent_input = self._handler.receive(command.agent, command.input)
            pinned_at = find_prompt_time(self.now, command.parent) or at
            instructions = self._handler.instruct(command.agent, agent_input, at=pinned_at)
        except InvalidInput as exc:
            reason = step_events.explain_invalid_input(command.agent, exc)
            if command.parent is None or command.call is None:
                self.cancel(by="", reason=reason)
            else:
                self.add(CallRefused(frame=command.parent, call=command.call, reason=reason))
        else:
            info = self._handler.agent(command.agent)
            caller = None if parent is None else self.now.frame(parent).agent
            item = caller is not None and self._handler.agent(caller).items
            text = instructions.text
            frame = FrameOpened(
                frame=command.frame,
                agent=command.agent,
                fingerprint=info.fingerprint,
                prompt=hash_value(text) if text else info.prompt,
                plan=info.plan,
                input=agent_input,
                parent=parent,
                call=call,
                model=info.model,
                at=at,
                compaction=info.compaction,
                budget=info.budget,
                rates=info.rates,
                instructions=text,
                pinned=instructions.pinned,
                item=item,
            )
            self.add(frame)

    def _change_agent(self, frame: str, change: VersionChange, by: str = "") -> bool:
        """Continue a frame with this process's version. If that version cannot make its instructions, end the run."""
        try:
            self.add(
                build_agent_changed(self.now, frame, change, self._handler, by, at=self._clock())
            )
        except InvalidInput as exc:
            self.cancel(
                by="", reason=step_events.explain_invalid_input(self.now.frame(frame).agent, exc)
            )
            return False
        return True

    def _record(self, result: AdmissionResult) -> None:
        if result.snapshot is not None:
            self.records.snapshots.append(with_revision(self.now, result.snapshot))
        self.add(result.event)
        if result.allowed is not None and result.gate is not None:
            self._passed.add(result.gate.gate)
            self._uses[result.allowed.use.id] += 1
            passed = GateDecided(
                gate=result.gate.gate,
                frame=result.gate.frame,
                call=result.gate.call,
                verdict=Verdict.APPROVE,
                by=result.allowed.use.by[-1],
                reason="",
                allowance=result.allowed.use,
            )
            self.add(passed)

    def _answer(self, command: AnswerInquiry, *, fits: bool) -> None:
        """Have an inquiry answered, unless it is under way. It fails at once if the budget does not suffice."""
        inquiry = open_inquiry(self.now, command.inquiry)
        if inquiry is None or command.inquiry in self._answering:
            return
        if not fits:
            error = "the budget does not suffice for an answer"
            self.add(
                QuestionFailed(
                    frame=inquiry.frame, call=inquiry.call, question=inquiry.id, error=error
                )
            )
        elif self._begin(command):
            self._answering.add(command.inquiry)

    def _begin(self, work: CallModel | AnswerInquiry | PreviewCall) -> bool:
        """Record work that has no intent, if a slot is free."""
        if not self._reserve(work):
            return False
        self.records.work.append(work)
        return True

    def _begin_preview(self, preview: PreviewCall) -> None:
        if self._begin(preview):
            self._previewing.add((preview.frame, preview.call))

    def _check_turn(self, frame: str, commands: Sequence[Command]) -> None:
        """Check the proposed calls of a frame: begin previews, then record the results.

        The gates open together, once every call has its preview. Calls after a change of the agent's plan are checked
        after it: people are shown to which item they belong.
        """
        previews, results = list[PreviewCall](), list[AdmissionResult]()
        uses = self._uses.copy()
        for command in commands:
            if not isinstance(command, CheckCall) or command.frame != frame:
                continue
            if (frame, command.call) in self._previewing:
                continue
            checked = self._admission.check(self.now, frame, command.call, uses)
            if isinstance(checked, PreviewCall):
                previews.append(checked)
                continue
            if checked.allowed is not None:
                uses[checked.allowed.use.id] += 1
            results.append(checked)
            if isinstance(checked.event, CallAdmitted) and checked.event.terms.plan:
                break
        if previews or (self._previewing and frame in {name for name, _ in self._previewing}):
            results = [result for result in results if not (result.gate and result.gate.call)]
        for preview in previews:
            self._begin_preview(preview)
        for result in results:
            if not is_blocked_by_gate(self.now, frame):
                self._record(result)

    def _may_start(self, frame: str, call: Call) -> bool:
        """Check a call once more. If it does not start, it is previewed, refused or asked again.

        This also verifies the approval that the step consumes.
        """
        gate = call.gate
        if (frame, call.id) in self._previewing:
            return False
        if not needs_recheck(call) or gate in self._passed:
            return True
        signal = None if gate is None else self._unverified.get(gate)
        decision = None if signal is None else signal.decision
        instead = self._admission.recheck(self.now, frame, call, decision)
        if isinstance(instead, AdmissionResult):
            self._record(instead)
            return False
        if gate is not None:
            self._unverified.pop(gate, None)
        if instead is not None:
            self._begin_preview(instead)
        return instead is None

    def _close_gate(self, gate: Pending, reason: str) -> None:
        self.add(GateClosed(gate=gate.gate, frame=gate.frame, call=gate.call, reason=reason))

    def _consume_decision(self, gate: Pending, signal: GateDecidedSignal) -> None:
        decision = signal.decision
        rule = VERDICTS[decision.verdict]
        fails = False
        if decision.verdict in STARTS_CALL_UNCHANGED:
            self._unverified[signal.gate] = signal  # it is verified with its call
        else:
            fails = self._admission.verify_decision(signal, gate.expires_at)
        change = None
        if rule.carries == "grant" and gate.kind is GateKind.VERSION:
            frame = self.now.frame(gate.frame)
            change = self._handler.compare_version(frame.agent, frame.fingerprint)
        self.add(decide_gate(self.now, gate, decision))
        if decision.edit is not None:  # it may equal a denied call or another one of the same turn
            digest = decision.edit.digest
            reason = explain_earlier_denial(self.now, digest) or explain_repetition(
                self.now, gate, digest
            )
            if reason is not None:
                self.add(CallRefused(frame=gate.frame, call=gate.call, reason=clean_text(reason)))
        if change is not None and change.agent.fingerprint == gate.version:
            self._change_agent(gate.frame, change)
        try:
            granted = read_grant(self.now, gate, decision)
        except InvalidBudget as exc:
            raise Tampered(f"the grant at gate {gate.gate}: {exc}") from exc
        if granted is not None:
            self.add(granted)
        if fails or rule.ends_run:
            self.cancel(by=decision.by, reason=decision.reason)
