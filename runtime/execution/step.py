"""Builds the next step from received messages, with everything that follows without I/O except through ports."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import assert_never
from uuid import UUID

from runtime.core.run.accounting import exhausted, fits, has_limits
from runtime.core.run.continuation import Call, Continuation, Pending, Phase, in_doubt
from runtime.core.run.events import (
    CallRefused,
    Cancelling,
    Event,
    GateClosed,
    ModelFailed,
    Paused,
    Resumed,
    ToolStarted,
    WaitEnded,
)
from runtime.core.run.gates import gate_of_call, is_blocked_by_gate, open_inquiry
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
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.texts import plain
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import InvalidInput
from runtime.execution.admission.admit import Admission, CallChecks
from runtime.execution.admission.gates import (
    AdmissionResult,
    denied_before,
    open_credential_gate,
    repeats,
    with_revision,
)
from runtime.execution.admission.versions import (
    VersionChanges,
    agent_changed,
    approve_change,
    open_version_gate,
    prompts_at,
    version_gates,
)
from runtime.execution.effects.outcomes import arrival
from runtime.execution.step_events import (
    begin_wait,
    close_frame,
    decide_gate,
    end_run,
    explain_invalid_input,
    explain_late_outcome,
    fail_inquiry,
    open_frame,
    open_limit_gate,
    pass_gate,
    read_grant,
    receive_event,
    receive_inquiry,
    receive_message,
    time_out_wait,
)
from runtime.ports.agents import VersionChange
from runtime.ports.approvals import ReviewSnapshot
from runtime.ports.effects import EffectHandler
from runtime.store.steps import PreviewCall, RecordedEvent, Records, Work, record_event
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
    """Builds on a committed state. `reserve` reserves a slot before any work is recorded."""

    def __init__(
        self,
        base: Continuation,
        handler: EffectHandler,
        admission: Admission,
        reserve: Callable[[Work], bool],
        clock: Callable[[], datetime],
    ) -> None:
        self.now = base
        self.records = Records()
        self._handler = handler
        self._admission = admission
        self._reserve = reserve
        self._clock = clock
        self._checks = CallChecks(admission)
        self._answering: set[UUID] = set()

    def add(
        self,
        event: Event,
        *,
        snapshot: ReviewSnapshot | None = None,
        work: StartTool | None = None,
        closed: str = "",
    ) -> None:
        """Add an event with its data, and apply it to the state."""
        record = record_event(event, snapshot=snapshot, work=work, closed=closed)
        self.now = evolve(self.now, record.event)
        self.records.add(record)

    def change(self, record: RecordedEvent) -> None:
        """Add a change of a step that is built again."""
        self.now = evolve(self.now, record.event)
        self.records.add(record)

    def apply_version_changes(self, version_changes: VersionChanges) -> None:
        """Continue every frame whose agent has changed with this process's version, or ask people first."""
        if self.now.phase is not Phase.STARTED or not (version_changes or self.now.pending):
            return
        for gate in version_gates(self.now):
            change = version_changes.get(gate.frame)
            if change is None or not change.asks or change.agent.fingerprint != gate.version:
                self._close_gate(gate, "the agent has changed once more")
        blocked = {gate.frame for gate in version_gates(self.now)}
        for frame, change in version_changes.items():
            if frame in blocked and change.asks:
                continue
            after, by = change.agent.fingerprint, ""
            if change.asks:
                by = self._admission.version_decided(self.now, frame, after)
            if change.asks and not by:
                self._record(open_version_gate(self.now, frame, change, self._clock()))
            elif not self._change_agent(frame, change, by):
                return

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
                    self.add(receive_message(signal))
            case InquirySignal():
                if (question := receive_inquiry(self.now, signal)) is not None:
                    self.add(question)
            case ExtensionSignal():
                extension = self._admission.read_extension(signal)
                with suppress(IllegalTransition):  # the gate is closed, or this was received
                    self.add(extension)
            case EventSignal():
                if (end := receive_event(self.now, signal)) is not None:
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
        for frame, call in in_doubt(self.now):
            if (frame, call.id, call.attempt) != (late.frame, late.call, late.attempt):
                continue
            pending = gate_of_call(self.now, frame, call.id)
            gate = None if pending is None else pending.gate
            if call.started_at != late.started_at or gate in settling:
                return
            self.add(arrival(late, gate), closed=explain_late_outcome(late))
            return

    def cancel(self, *, by: str, reason: str) -> None:
        """Start no new effect, and close every gate of the run."""
        if self.now.phase is not Phase.STARTED:
            return
        self.add(Cancelling(by=by, reason=reason))
        for pending in self.now.pending:
            self._close_gate(pending, reason)
        for wait in self.now.all_waiting():
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
                self.add(time_out_wait(self.now, wait.frame, wait.call))

    def plan_next(
        self,
        busy: set[str],
        previewing: Collection[tuple[str, str]] = (),
        answering: Collection[UUID] = (),
    ) -> None:
        """Add everything that follows without I/O. `busy` frames wait for their model.

        `previewing` calls wait for their preview, `answering` inquiries for their answer. A run that is ending waits
        for its models: their calls are stopped, and the partial replies are kept as evidence. Raises Tampered for an
        approval that no person gave.
        """
        calling = set(busy)
        for work in self.records.work:
            if isinstance(work, CallModel):
                calling.add(work.frame)
        self._checks.previewing.update(previewing)
        self._answering.update(answering)
        while True:
            before = self.now
            is_limited = has_limits(before)
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
                limits = exhausted(before, commands, at)
                if limits:  # one gate for all that are exhausted and needed
                    reached, gate = open_limit_gate(before, limits, at)
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
                    self._answer(command, fits=not is_limited or fits(self.now, command, calling))
                    continue
                if is_limited and not fits(self.now, command, calling):
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
        if self._checks.unverified:
            self._checks.verify_rest()

    def _execute(self, command: Command) -> None:
        match command:
            case OpenFrame():
                self._open_frame(command)
            case StartTool():
                call = self.now.call(command.frame, command.call)
                if call.credential:  # which is missing: it holds the frame
                    at = self._clock()
                    self._record(open_credential_gate(self.now, command.frame, call, at))
                elif self._may_start(command.frame, call) and self._reserve(command):
                    started = ToolStarted(
                        frame=command.frame,
                        call=command.call,
                        attempt=command.attempt,
                        at=self._clock(),
                    )
                    self.add(started, work=command)
            case StartWait():
                if self._may_start(command.frame, self.now.call(command.frame, command.call)):
                    self.add(begin_wait(self.now, command, self._clock()))
            case OpenInDoubt():
                self._record(self._admission.open_in_doubt(self.now, command.frame, command.call))
            case CancelRun():
                self.cancel(by="", reason=command.reason)
            case FailFrame():
                self.add(ModelFailed(frame=command.frame, error=command.error))
            case CloseFrame():
                self.add(close_frame(self.now.frame(command.frame)))
            case EndRun():
                self.add(end_run(self.now))
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
            pinned_at = prompts_at(self.now, command.parent) or at
            instructions = self._handler.instruct(command.agent, agent_input, at=pinned_at)
        except InvalidInput as exc:
            reason = explain_invalid_input(command.agent, exc)
            if command.parent is None or command.call is None:
                self.cancel(by="", reason=reason)
            else:
                self.add(CallRefused(frame=command.parent, call=command.call, reason=reason))
        else:
            info = self._handler.agent(command.agent)
            caller = None if parent is None else self.now.frame(parent).agent
            item = caller is not None and self._handler.agent(caller).items
            self.add(open_frame(command, agent_input, instructions, info, at, item=item))

    def _change_agent(self, frame: str, change: VersionChange, by: str = "") -> bool:
        """Continue a frame with this process's version. If that version cannot make its instructions, end the run."""
        try:
            self.add(agent_changed(self.now, frame, change, self._handler, by, at=self._clock()))
        except InvalidInput as exc:
            self.cancel(by="", reason=explain_invalid_input(self.now.frame(frame).agent, exc))
            return False
        return True

    def _record(self, result: AdmissionResult) -> None:
        self.add(result.event, snapshot=with_revision(self.now, result.snapshot))
        if result.allowed is not None and result.gate is not None:
            self._checks.passed(result.gate.gate, result.allowed.use)
            self.add(pass_gate(result.gate, result.allowed.use))

    def _answer(self, command: AnswerInquiry, *, fits: bool) -> None:
        """Have an inquiry answered, unless it is under way. It fails at once if the budget does not suffice."""
        inquiry = open_inquiry(self.now, command.inquiry)
        if inquiry is None or command.inquiry in self._answering:
            return
        if not fits:
            self.add(fail_inquiry(inquiry))
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
            self._checks.previewing.add((preview.frame, preview.call))

    def _check_turn(self, frame: str, commands: Sequence[Command]) -> None:
        calls = [
            command.call
            for command in commands
            if isinstance(command, CheckCall) and command.frame == frame
        ]
        previews, results = self._checks.check_turn(self.now, frame, calls)
        for preview in previews:
            self._begin_preview(preview)
        for result in results:
            if not is_blocked_by_gate(self.now, frame):
                self._record(result)

    def _may_start(self, frame: str, call: Call) -> bool:
        """Check a call once more. If it does not start, it is previewed, refused or asked again."""
        if (frame, call.id) in self._checks.previewing:
            return False
        instead = self._checks.recheck(self.now, frame, call)
        if isinstance(instead, PreviewCall):
            self._begin_preview(instead)
        elif instead is not None:
            self._record(instead)
        return instead is None

    def _close_gate(self, gate: Pending, reason: str) -> None:
        self.add(GateClosed(gate=gate.gate, frame=gate.frame, call=gate.call, reason=reason))

    def _consume_decision(self, gate: Pending, signal: GateDecidedSignal) -> None:
        decision = signal.decision
        rule = VERDICTS[decision.verdict]
        fails = self._checks.receive(signal, gate.expires_at)
        change = approve_change(self.now, gate, self._handler) if rule.carries == "grant" else None
        self.add(decide_gate(self.now, gate, signal))
        if decision.edit is not None:  # it may equal a denied call or another one of the same turn
            digest = decision.edit.digest
            reason = denied_before(self.now, digest) or repeats(self.now, gate, digest)
            if reason is not None:
                self.add(CallRefused(frame=gate.frame, call=gate.call, reason=plain(reason)))
        if change is not None:
            self._change_agent(gate.frame, change)
        granted = read_grant(self.now, gate, decision)
        if granted is not None:
            self.add(granted)
        if fails or rule.ends_run:
            self.cancel(by=decision.by, reason=decision.reason)
