"""Whether a proposed call is admitted, gated or refused, and whether an approved one may still start.

Code describes the call, the gatekeeper says whether a person must decide. What was true at that
moment is frozen into the call's terms; just before an approved call starts it is looked at again.
"""

from dataclasses import dataclass
from uuid import uuid4

from runtime.core.continuation import MAX_DEPTH, Call, Continuation
from runtime.core.decisions import GateKind
from runtime.core.digest import action_digest
from runtime.core.errors import NotJson
from runtime.core.events import CallAdmitted, CallRefused, GateOpened, Terms
from runtime.core.ids import depth_of
from runtime.errors import Tampered
from runtime.ports import (
    ActionPicture,
    CallFacts,
    CallRejected,
    EffectHandler,
    Gatekeeper,
    NotConfirmed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The event that says what was found, and the picture for reviewers if a gate opens."""

    event: CallAdmitted | CallRefused | GateOpened
    picture: ActionPicture | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges with the code and the policy of this process."""

    handler: EffectHandler
    gatekeeper: Gatekeeper

    def judge(self, now: Continuation, frame: str, call: str) -> Judged:
        """What becomes of a proposed call."""
        found = now.call(frame, call)
        try:
            facts, terms = self._describe(now, frame, found)
        except (CallRejected, NotJson) as exc:
            return Judged(event=CallRefused(frame=frame, call=call, reason=str(exc)))
        if self.gatekeeper.gates(facts):
            return _gated(now, frame, found, facts, terms)
        return Judged(event=CallAdmitted(frame=frame, call=call, terms=terms))

    def second_look(self, now: Continuation, frame: str, call: str) -> Judged | None:
        """Just before an approved call starts: None if it still is what was approved.

        If it changed people are asked again. Raises Tampered if its approval is not what was written.
        """
        found = now.call(frame, call)
        if found.gate is None or found.terms is None:
            return None
        try:
            facts, terms = self._describe(now, frame, found)
        except (CallRejected, NotJson) as exc:
            return Judged(event=CallRefused(frame=frame, call=call, reason=str(exc)))
        if terms.digest != found.terms.digest:
            return _gated(now, frame, found, facts, terms)
        self.confirm(found)
        return None

    def confirm(self, call: Call) -> None:
        """Raises Tampered unless the call needs no approval or has one for exactly this action."""
        if call.gate is None or call.terms is None:
            return
        try:
            self.gatekeeper.confirm(gate=call.gate, action_digest=call.terms.digest)
        except NotConfirmed as exc:
            raise Tampered(f"the approval of call {call.id}: {exc}") from exc

    def _describe(self, now: Continuation, frame: str, call: Call) -> tuple[CallFacts, Terms]:
        agent = now.frame(frame).agent
        facts = self.handler.describe(agent=agent, tool=call.tool, args=call.args)
        if facts.delegate is not None and depth_of(frame) + 1 >= MAX_DEPTH:
            raise CallRejected(f"agents may not be nested deeper than {MAX_DEPTH}")
        digest = action_digest(
            tool=facts.tool,
            schema=facts.schema_digest,
            args=call.args,
            path=now.path(frame, call.tool),
            effect=facts.effect,
        )
        terms = Terms(
            effect=facts.effect, digest=digest, deadline=facts.deadline, delegate=facts.delegate
        )
        return facts, terms


def _gated(now: Continuation, frame: str, call: Call, facts: CallFacts, terms: Terms) -> Judged:
    event = GateOpened(gate=uuid4(), kind=GateKind.APPROVAL, frame=frame, call=call.id, terms=terms)
    picture = ActionPicture(
        run=now.run,
        gate=event.gate,
        frame=frame,
        call=call.id,
        tool=call.tool,
        args=call.args,
        schema=facts.schema,
        path=now.path(frame, call.tool),
        effect=facts.effect,
        risk=facts.risk,
        sentence=facts.sentence,
        action_digest=terms.digest,
        requester=now.requester,
    )
    return Judged(event=event, picture=picture)
