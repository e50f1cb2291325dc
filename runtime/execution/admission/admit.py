"""Admits, gates or refuses a proposed call, and checks an approved one again just before it starts.

Code describes the call; approvals says whether a person must decide. The answers are fixed in the call's
options.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError

from runtime.core.documents import external_call
from runtime.core.run.calls import find_revision
from runtime.core.run.continuation import MAX_DEPTH, Call, Continuation, Frame, list_steering_people
from runtime.core.run.events import CallAdmitted, CallRefused, GateExtended, GateOpened
from runtime.core.run.frames import is_stuck, list_undelivered
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import (
    EFFECT_CLASSES,
    CallPreview,
    Decision,
    EffectClass,
    GateKind,
    Risk,
)
from runtime.core.values.errors import CoreError, NotJson
from runtime.core.values.ids import compute_depth
from runtime.core.values.json_values import hash_value, measure_size
from runtime.core.values.limits import MAX_ARGS
from runtime.core.values.texts import clean_text
from runtime.errors import RuntimeFault, Tampered, UnknownAgent
from runtime.execution.admission import gates as earlier
from runtime.execution.admission.gates import (
    AdmissionResult,
    build_call_terms,
    build_policy_facts,
    make_gate_id,
    open_frame_gate,
    open_outage_gate,
    open_repetition_gate,
    snapshot,
)
from runtime.ports.agents import CallInfo, CallRejected, TurnBoundary
from runtime.ports.approvals import ApprovalPort, NotConfirmed, Ruling, VerifiedApproval
from runtime.ports.effects import EffectHandler
from runtime.store.steps import PreviewCall
from runtime.store.tables.signals import ExtensionSignal, GateDecidedSignal

log = logging.getLogger(__name__)

MAX_ERROR = 500

# Errors that no rule causes: the run is released or quarantined, and no person is asked.
_OURS = (RuntimeFault, CoreError, UnknownAgent, psycopg.Error, DatabaseError)
MAX_CONFIRMING_AGE = timedelta(seconds=10)  # of the preview that must equal the approved one

# The age up to which a gate shows a preview. It is longer, because the gates of a turn open together, after the last of
# its previews. The preview is made again before the effect.
MAX_SHOWN_AGE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The admission of a call: the reason if it is refused, else whether a person is asked, and its effect class.

    `failure` is the error with which the author's code failed, so that its agent is held; empty if none.
    """

    refused: str = ""
    failure: str = ""
    asks: bool = False
    effect: EffectClass | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Checks calls with the code and the policy of this process; `clock` returns database time.

    `approved` has the approvals of one run that were verified before their calls start, by gate.
    """

    handler: EffectHandler
    approvals: ApprovalPort
    clock: Callable[[], datetime]
    approved: dict[UUID, VerifiedApproval] = field(default_factory=dict)

    def check(
        self,
        now: Continuation,
        frame: str,
        call: str,
        uses: Mapping[UUID, int] = MappingProxyType({}),
    ) -> AdmissionResult | PreviewCall:
        """Admit, gate or refuse a proposed call, or have it previewed first.

        If the check itself fails, open a gate for people. `uses` counts the uses of allowances in this step.
        """
        try:
            return self._check(now, frame, call, uses)
        except _OURS:
            raise
        except Exception as exc:
            return self._hold_on_error(now, frame, call, exc)

    def _check(
        self, now: Continuation, frame: str, call: str, uses: Mapping[UUID, int]
    ) -> AdmissionResult | PreviewCall:
        owner = now.frames[frame]
        proposed = owner.find(call)
        try:
            info, terms = self._considered(now, owner, proposed)
        except (CallRejected, NotJson) as exc:
            return AdmissionResult(
                event=CallRefused(frame=frame, call=call, reason=clean_text(str(exc)))
            )
        changed = self._is_changed(now, owner, proposed, terms)
        if info.question:
            return self._ask(now, frame, proposed, info, terms)
        ruling = (
            None
            if changed
            else self.approvals.judge(info, build_policy_facts(now, frame, proposed))
        )
        if ruling is None or ruling.gated:
            result = self._ask(now, frame, proposed, info, terms, ruling)
            if changed or isinstance(result, PreviewCall):
                return result
            review = result.snapshot
            allowed = None if review is None else self.approvals.allow(review, uses)
            if review is None or allowed is None:
                return result
            self.approved[review.gate] = VerifiedApproval(by=allowed.use.by)
            return replace(result, snapshot=replace(review, allowed=allowed), allowed=allowed)
        return AdmissionResult(event=CallAdmitted(frame=frame, call=call, terms=terms))

    def foresee(self, now: Continuation, frame: str, call: str) -> Foreseen:
        """Say what `check` would do with a proposed call, without a preview and without opening a gate."""
        try:
            owner = now.frames[frame]
            proposed = owner.find(call)
            info, terms = self._considered(now, owner, proposed)
            asks = info.question or self._is_changed(now, owner, proposed, terms)
            ruling = self.approvals.judge(info, build_policy_facts(now, frame, proposed))
            return Foreseen(asks=asks or ruling.gated, effect=terms.effect)
        except (CallRejected, NotJson) as exc:
            return Foreseen(refused=clean_text(str(exc)))
        except _OURS:
            raise
        except Exception as exc:
            return Foreseen(failure=type(exc).__name__)

    def _considered(
        self, now: Continuation, frame: Frame, call: Call
    ) -> tuple[CallInfo, CallOptions]:
        """Describe a proposed call. Raises CallRejected or NotJson if it cannot be made."""
        earlier.require_new(frame, call)
        info = self._describe(frame, call)
        terms = build_call_terms(now, frame.id, call, info)
        earlier.require_not_denied(now, terms)
        return info, terms

    @staticmethod
    def _is_changed(now: Continuation, frame: Frame, call: Call, terms: CallOptions) -> bool:
        """Return whether the call is one that a person changed, or asked to change: then a person is asked."""
        if call.edited is not None or terms.digest in now.edits:
            return True
        return find_revision(frame, call) is not None

    def recheck(
        self, now: Continuation, frame: str, call: Call, decision: Decision | None = None
    ) -> AdmissionResult | PreviewCall | None:
        """Check an approved call just before an attempt: None if it is unchanged since the approval.

        It is previewed again first. If it changed, or the approval is no longer valid, people are asked again. Raises
        Tampered if its approval does not verify, or is not `decision`, which the step of the attempt consumes.
        """
        try:
            return self._check_decision(now, frame, call, decision)
        except _OURS:
            raise
        except Exception as exc:
            return self._hold_on_error(now, frame, call.id, exc)

    def find_version_decider(self, now: Continuation, frame: str, after: str) -> str:
        """Return the admin who decided that runs continue under version `after`, empty if people are asked here."""
        here = now.frame(frame)
        admin = self.approvals.find_version_decider(
            run=now.run,
            agent=here.agent,
            before=here.fingerprint,
            after=after,
            requester=now.requester,
            origin=list_steering_people(now),
        )
        return admin or ""

    def open_hold(self, now: Continuation, frame: str) -> AdmissionResult | None:
        """Open a hold before a model call: after an outage, if the model repeats itself, or by the agent's rules.

        The last two open at most once a turn.
        """
        frame_state = now.frames[frame]
        at = self.clock()
        if frame_state.outage and frame_state.outage.asks_at and frame_state.outage.asks_at <= at:
            return open_outage_gate(now, frame_state, frame_state.outage, at)
        if frame_state.cleared >= frame_state.turn:
            return None
        if is_stuck(now, frame_state):
            return open_repetition_gate(now, frame_state, at)
        since = frame_state.cleared_at or frame_state.opened_at or at
        boundary = TurnBoundary(
            agent=frame_state.agent,
            turn=frame_state.turn,
            seconds=max(0.0, (at - since).total_seconds()),
            messages=frame_state.messages + list_undelivered(now, frame),
        )
        try:
            reason = self.handler.hold_reason(boundary)
        except _OURS:
            raise
        except Exception as exc:
            log.exception("Agent %s: its hold rules failed in run %s", frame_state.agent, now.run)
            reason = f"The hold rules of {frame_state.agent} failed: {type(exc).__name__}"
        if not reason:
            return None
        args = {"turn": frame_state.turn, "agent": frame_state.agent}
        return open_frame_gate(now, frame, GateKind.HOLD, reason=reason, args=args, at=at)

    def _hold_on_error(
        self, now: Continuation, frame: str, call: str, exc: Exception
    ) -> AdmissionResult:
        """Open a hold: the reply has been paid for, so it is kept.

        Its call stays proposed until a person resolves the hold.
        """
        log.error("Admission of %s/%s failed in run %s", frame, call, now.run, exc_info=exc)
        tool = now.call(frame, call).tool
        reason = f"It is unknown whether {tool} needs an approval: {type(exc).__name__}"
        args = {"call": call, "tool": tool, "error": str(exc)[:MAX_ERROR]}
        return open_frame_gate(now, frame, GateKind.HOLD, reason=reason, args=args, at=self.clock())

    def _check_decision(
        self, now: Continuation, frame: str, approved: Call, decision: Decision | None
    ) -> AdmissionResult | PreviewCall | None:
        if approved.terms is None or not earlier.needs_recheck(approved):
            return None
        try:
            info = self._describe(now.frames[frame], approved)
            terms = earlier.as_approved(self.approvals, now, frame, approved, info)
            is_same = terms.digest == approved.terms.digest and not earlier.is_stricter(
                info, approved.terms
            )
            ruling = self.approvals.judge(info, build_policy_facts(now, frame, approved))
            lacks_approval = approved.gate is None and ruling.gated
            if (
                is_same
                and not lacks_approval
                and self._confirmed(now, approved, info.risk, decision)
            ):
                if is_confirmed(approved, self.clock()):
                    return None
                if not is_current(approved.preview, terms.digest, self.clock()):
                    return PreviewCall(frame=frame, call=approved.id, terms=terms)
            earlier.require_not_denied(now, terms)
        except (CallRejected, NotJson) as exc:
            return AdmissionResult(
                event=CallRefused(frame=frame, call=approved.id, reason=clean_text(str(exc)))
            )
        return self._ask(now, frame, approved, info, terms, ruling)

    def verify_decision(self, signal: GateDecidedSignal, deadline: datetime | None = None) -> bool:
        """Raise Tampered unless a person with the right to decide signed this decision.

        Return whether it is an expiry, at this deadline of its gate, with which the run fails.
        """
        try:
            return self.approvals.verify_decision(
                gate=signal.gate, decision=signal.decision, deadline=deadline
            )
        except NotConfirmed as exc:
            raise Tampered(f"the decision of gate {signal.gate}: {exc}") from exc

    def read_extension(self, signal: ExtensionSignal) -> GateExtended:
        """Return the event of a received extension. Raise Tampered unless a person signed it."""
        try:
            return self.approvals.read_extension(signal.document)
        except NotConfirmed as exc:
            raise Tampered(f"the extension of a deadline: {exc}") from exc

    def open_in_doubt(self, now: Continuation, frame: str, call: str) -> AdmissionResult:
        """Return the gate at which people resolve a call whose outcome is unknown.

        The present code describes it, but its effect class stays as it was at its start.
        """
        started = now.call(frame, call)
        assert started.terms is not None  # a call is checked before it is started
        assert started.started_at is not None
        try:
            described = self._describe(now.frames[frame], started)
            info = replace(described, effect=started.terms.effect)
        except (CallRejected, NotJson):  # it could not be made today
            info = CallInfo(
                tool=started.tool,
                effect=started.terms.effect,
                risk=Risk.HIGH,
                gated=True,
                sentence=f"Call {started.tool}, which this version cannot make any more",
                schema={},
                schema_digest=hash_value({}),
                deadline=started.terms.deadline,
            )
        event = GateOpened(
            gate=make_gate_id(self.clock()),
            kind=GateKind.IN_DOUBT,
            frame=frame,
            call=call,
            terms=build_call_terms(now, frame, started, info),
        )
        # No worker may run the call again while its first start may still be running.
        wait = timedelta(seconds=started.terms.deadline + settings.SIGNOFF_LEASE_SECONDS)
        review_snapshot = replace(
            snapshot(now, event, started, info), not_before=started.started_at + wait
        )
        return AdmissionResult(event=event, snapshot=review_snapshot)

    def _confirmed(
        self, now: Continuation, call: Call, risk: Risk, decision: Decision | None
    ) -> bool:
        if call.gate is None or call.terms is None:
            return True
        approval = earlier.find_verified_approval(self.approvals, now, call, risk, decision)
        if approval is not None:
            self.approved[call.gate] = approval
        return approval is not None

    def _describe(self, frame: Frame, call: Call) -> CallInfo:
        size = measure_size(call.args)
        if size > MAX_ARGS:
            raise CallRejected(f"arguments: {size} bytes of JSON, at most {MAX_ARGS} are taken")
        info = self.handler.describe(agent=frame.agent, tool=call.tool, args=call.args)
        if info.delegate is not None and compute_depth(frame.id) + 1 >= MAX_DEPTH:
            raise CallRejected(f"agents may not be nested deeper than {MAX_DEPTH}")
        return info

    def _ask(
        self,
        now: Continuation,
        frame: str,
        call: Call,
        info: CallInfo,
        terms: CallOptions,
        ruling: Ruling | None = None,
    ) -> AdmissionResult | PreviewCall:
        """Open a gate, with a preview if the tool has one. A call whose precondition fails is refused instead."""
        if info.previews:
            if not is_current(call.preview, terms.digest, self.clock(), MAX_SHOWN_AGE):
                return PreviewCall(frame=frame, call=call.id, terms=terms)
            if call.preview is not None and call.preview.refused:
                refused = CallRefused(
                    frame=frame, call=call.id, reason=clean_text(call.preview.refused)
                )
                return AdmissionResult(event=refused)
        if ruling is None:
            ruling = self.approvals.judge(info, build_policy_facts(now, frame, call))
        default = float(settings.SIGNOFF_APPROVAL_SECONDS)
        limits = [limit for limit in (ruling.expires_in, info.expires_in) if limit is not None]
        seconds = min(limits, default=default) + ruling.extends_by
        at = self.clock()
        expires_at = at + timedelta(seconds=seconds)
        if terms.waits == "instance":
            expires_at = min(expires_at, external_call.read_deadline(now.input))
        event = GateOpened(
            gate=make_gate_id(at),
            kind=GateKind.QUESTION if info.question else GateKind.APPROVAL,
            frame=frame,
            call=call.id,
            terms=terms,
            expires_at=expires_at,
            reason=info.problem,
        )
        return AdmissionResult(event=event, snapshot=snapshot(now, event, call, info))


def is_current(
    preview: CallPreview | None, digest: str, at: datetime, within: timedelta = MAX_CONFIRMING_AGE
) -> bool:
    """Return whether a preview was made of this action, not longer ago than `within`."""
    if preview is None or preview.at is None or preview.digest != digest:
        return False
    return at - preview.at <= within


def is_confirmed(call: Call, at: datetime) -> bool:
    """Return whether the approved call would do what the reviewer saw.

    A call that was approved without a preview needs none. Neither does a repeated `idempotent` one, whose earlier
    attempt may have had its effect: then nothing is left to change.
    """
    if call.shown is None or not call.shown.material:
        return True
    if (
        call.attempt > 0
        and call.terms is not None
        and EFFECT_CLASSES[call.terms.effect].needs_same_key
    ):
        return True
    newest = call.preview
    if not is_current(newest, call.shown.digest, at) or newest is None:
        return False
    return newest.material == call.shown.material
