"""Checks the calls of one step: those that a model proposed, and approved ones again just before they start."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from runtime.core.run.continuation import Call, Continuation
from runtime.core.run.events import AllowanceUse, CallAdmitted
from runtime.core.values.verdicts import STARTS_CALL_UNCHANGED
from runtime.execution.admission.admit import Admission
from runtime.execution.admission.gates import AdmissionResult, needs_recheck
from runtime.store.step_records import PreviewCall
from runtime.store.tables.signals import GateDecidedSignal


class CallChecks:
    """The checks of one step."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.previewing: set[tuple[str, str]] = set()  # calls that wait for their preview
        self.unverified: dict[UUID, GateDecidedSignal] = {}  # approvals that the step consumes
        self._passed: set[UUID] = set()  # gates that an allowance decides in this step
        self._uses = defaultdict[UUID, int](int)  # by allowance

    def receive(self, signal: GateDecidedSignal, deadline: datetime | None) -> bool:
        """Verify a decision at a gate with this deadline now, but an approval with its call. Raises Tampered.

        Return whether it is an expiry with which the run fails.
        """
        if signal.decision.verdict in STARTS_CALL_UNCHANGED:
            self.unverified[signal.gate] = signal
            return False
        return self._admission.verify_decision(signal, deadline)

    def verify_rest(self) -> None:
        """Verify the approvals whose calls do not start in this step. Raises Tampered."""
        for gate, signal in tuple(self.unverified.items()):
            self._admission.verify_decision(signal)
            del self.unverified[gate]

    def passed(self, gate: UUID, use: AllowanceUse) -> None:
        """Note that the step takes this use for the call at this gate."""
        self._passed.add(gate)
        self._uses[use.id] += 1

    def check_turn(
        self, now: Continuation, frame: str, calls: Sequence[str]
    ) -> tuple[list[PreviewCall], list[AdmissionResult]]:
        """Check the proposed calls of a frame, and return the previews to start and the results to record.

        The gates open together, once every call has its preview.

        Calls after a change of the agent's plan are checked after it: people are shown to which item they belong.
        """
        previews, results = list[PreviewCall](), list[AdmissionResult]()
        uses = self._uses.copy()
        for call in calls:
            if (frame, call) in self.previewing:
                continue
            checked = self._admission.check(now, frame, call, uses)
            if isinstance(checked, PreviewCall):
                previews.append(checked)
                continue
            if checked.allowed is not None:
                uses[checked.allowed.use.id] += 1
            results.append(checked)
            if isinstance(checked.event, CallAdmitted) and checked.event.terms.plan:
                break
        if previews or frame in {waiting for waiting, _ in self.previewing}:
            results = [result for result in results if not (result.gate and result.gate.call)]
        return previews, results

    def recheck(
        self, now: Continuation, frame: str, call: Call
    ) -> AdmissionResult | PreviewCall | None:
        """Check an approved call just before it starts. Return None if it starts now, else what comes first.

        This also verifies the approval that the step consumes.
        """
        if not needs_recheck(call):
            return None
        gate = call.gate
        if gate in self._passed:  # its check is part of this step
            return None
        signal = None if gate is None else self.unverified.get(gate)
        decision = None if signal is None else signal.decision
        other = self._admission.recheck(now, frame, call, decision)
        if not isinstance(other, AdmissionResult) and gate is not None:
            self.unverified.pop(gate, None)
        return other
