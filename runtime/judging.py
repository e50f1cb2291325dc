"""Whether a proposed call is admitted, gated or refused, and whether an approved one may still start.

Code describes the call, the gatekeeper says whether a person must decide. What was true at that
moment is frozen into the call's terms; just before an approved call starts it is looked at again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import uuid4

from django.conf import settings

from runtime import leases
from runtime.core.continuation import MAX_DEPTH, Call, Continuation
from runtime.core.decisions import GateKind, Risk
from runtime.core.digest import action_digest, sha256_of
from runtime.core.errors import NotJson
from runtime.core.events import CallAdmitted, CallRefused, GateOpened, Terms
from runtime.core.ids import depth_of
from runtime.errors import Tampered
from runtime.ports import (
    ActionPicture,
    ApprovalVoid,
    CallFacts,
    CallRejected,
    EffectHandler,
    Gatekeeper,
    NotConfirmed,
)
from runtime.signals import GateDecidedSignal


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The event that says what was found, and the picture for reviewers if a gate opens."""

    event: CallAdmitted | CallRefused | GateOpened
    picture: ActionPicture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges with the code and the policy of this process; `clock` tells database time."""

    handler: EffectHandler
    gatekeeper: Gatekeeper
    clock: Callable[[], datetime]

    def judge(self, now: Continuation, frame: str, call: str) -> Judged:
        """What becomes of a proposed call."""
        found = now.call(frame, call)
        try:
            _require_new(now, frame, found)
            facts = self._describe(now, frame, found)
            terms = _terms(now, frame, found, facts)
        except (CallRejected, NotJson) as exc:
            return Judged(event=CallRefused(frame=frame, call=call, reason=str(exc)))
        if self.gatekeeper.gates(facts):
            return self._gated(now, frame, found, facts, terms)
        return Judged(event=CallAdmitted(frame=frame, call=call, terms=terms))

    def second_look(self, now: Continuation, frame: str, call: str) -> Judged | None:
        """Just before an attempt at an approved call: None if it still is what was approved.

        If it changed, or the approval does not hold any more, people are asked again. Raises Tampered if
        its approval is not what was written.
        """
        found = now.call(frame, call)
        if found.gate is None or found.terms is None:
            return None
        try:
            facts = self._describe(now, frame, found)
            terms = _terms(now, frame, found, facts)
        except (CallRejected, NotJson) as exc:
            return Judged(event=CallRefused(frame=frame, call=call, reason=str(exc)))
        if terms.digest != found.terms.digest or not self._confirmed(found):
            return self._gated(now, frame, found, facts, terms)
        return None

    def vouch(self, signal: GateDecidedSignal) -> None:
        """Raises Tampered unless somebody with the right to decide signed this decision."""
        try:
            self.gatekeeper.vouch(gate=signal.gate, decision=signal.decision)
        except NotConfirmed as exc:
            raise Tampered(f"the decision of gate {signal.gate}: {exc}") from exc

    def doubt(self, now: Continuation, frame: str, call: str) -> Judged:
        """The gate at which people say what became of a call that nobody knows about.

        It is described as the code has it today, but its effect class stays what it was at its start.
        """
        found = now.call(frame, call)
        assert found.terms is not None  # a call is judged before it is started
        assert found.started_at is not None
        facts = replace(self._facts_of_started(now, frame, found), effect=found.terms.effect)
        event = GateOpened(
            gate=uuid4(),
            kind=GateKind.IN_DOUBT,
            frame=frame,
            call=call,
            terms=_terms(now, frame, found, facts),
        )
        wait = timedelta(seconds=found.terms.deadline + leases.lease_seconds())
        picture = _picture(now, event, found, facts)
        return Judged(event=event, picture=replace(picture, not_before=found.started_at + wait))

    def _facts_of_started(self, now: Continuation, frame: str, call: Call) -> CallFacts:
        """What the code says today of a call that was started, even if it could not be made today."""
        assert call.terms is not None
        try:
            return self._describe(now, frame, call)
        except (CallRejected, NotJson):
            return CallFacts(
                tool=call.tool,
                effect=call.terms.effect,
                risk=Risk.HIGH,
                gated=True,
                sentence=f"Call {call.tool}, which this version cannot make any more",
                schema={},
                schema_digest=sha256_of({}),
                deadline=call.terms.deadline,
            )

    def _confirmed(self, call: Call) -> bool:
        if call.gate is None or call.terms is None:
            return True
        try:
            self.gatekeeper.confirm(gate=call.gate, action_digest=call.terms.digest)
        except ApprovalVoid:
            return False
        except NotConfirmed as exc:
            raise Tampered(f"the approval of call {call.id}: {exc}") from exc
        return True

    def _describe(self, now: Continuation, frame: str, call: Call) -> CallFacts:
        agent = now.frame(frame).agent
        facts = self.handler.describe(agent=agent, tool=call.tool, args=call.args)
        if facts.delegate is not None and depth_of(frame) + 1 >= MAX_DEPTH:
            raise CallRejected(f"agents may not be nested deeper than {MAX_DEPTH}")
        return facts

    def _gated(
        self, now: Continuation, frame: str, call: Call, facts: CallFacts, terms: Terms
    ) -> Judged:
        seconds = facts.expires_in or float(settings.ABEYANCE_APPROVAL_SECONDS)
        event = GateOpened(
            gate=uuid4(),
            kind=GateKind.APPROVAL,
            frame=frame,
            call=call.id,
            terms=terms,
            expires_at=self.clock() + timedelta(seconds=seconds),
        )
        return Judged(event=event, picture=_picture(now, event, call, facts))


def _require_new(now: Continuation, frame: str, call: Call) -> None:
    """A model that proposes the same call twice in one turn means it once."""
    for other in now.frame(frame).of_turn():
        if other.id == call.id:
            return
        if (other.tool, other.args) == (call.tool, call.args):
            raise CallRejected(f"this repeats {other.id} of the same turn, which is made once")


def _terms(now: Continuation, frame: str, call: Call, facts: CallFacts) -> Terms:
    digest = action_digest(
        tool=facts.tool,
        schema=facts.schema_digest,
        args=call.args,
        path=now.path(frame, call.tool),
        effect=facts.effect,
    )
    return Terms(
        effect=facts.effect,
        digest=digest,
        deadline=facts.deadline,
        delegate=facts.delegate,
        retry=facts.retry,
    )


def _picture(now: Continuation, event: GateOpened, call: Call, facts: CallFacts) -> ActionPicture:
    return ActionPicture(
        run=now.run,
        gate=event.gate,
        kind=event.kind,
        frame=event.frame,
        call=call.id,
        tool=call.tool,
        args=call.args,
        schema=facts.schema,
        path=now.path(event.frame, call.tool),
        effect=event.terms.effect,
        risk=facts.risk,
        sentence=facts.sentence,
        action_digest=event.terms.digest,
        requester=now.requester,
        expires_at=event.expires_at,
        result_schema=facts.result_schema,
    )
