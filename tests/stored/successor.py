"""A worker that never heard of a run takes its document up, with people who say one thing at every approval."""

from datetime import datetime, timedelta
from typing import Any

from agents.sdk.spec import AgentSpec
from agents.testing.worker import Worker
from runtime.core.continuation import Continuation, Pending
from runtime.core.documents.codec import decode_continuation, decode_entry
from runtime.core.enums import FRAME_GATES, Decision, GateKind, Verdict
from runtime.core.machine.replay import initial, recover, step
from runtime.store.tables.signals import ResumeSignal
from tests.stored.scenarios import PICTURE

MAX_GATES = 10
IN_DOUBT = {Verdict.APPROVE: Verdict.RUN_AGAIN, Verdict.DENY: Verdict.GIVE_UP}


class Heir(Worker):
    """`asked` lists the kind of every gate that a person or its expiry decided, in order."""

    def __init__(self, spec: AgentSpec, document: dict[str, Any]) -> None:
        super().__init__(spec, (), ())
        self.asked: list[GateKind] = []
        self.now = state_of(document)
        self.journal = list(document["journal"])
        self.clock = datetime.fromisoformat(document["clock"])
        self._approvals.show([PICTURE.validate_python(gate) for gate in document["gates"]])

    def resume(self) -> None:
        """Resume the run like a worker that claims it."""
        if self.now.paused is not None:
            self.advance(ResumeSignal(id=2000, by="ada"))
        self.advance(*recover(self.now))
        self.go_on()
        for wait in self.waiting():
            self.send(wait.event, "e-1", wait.match)
        self.go_on()

    def meet(self, verdict: Verdict) -> None:
        """Let everything be decided until the run is over, or nothing that may be said is left."""
        while not self.now.ended and len(self.asked) < MAX_GATES:
            waiting = next((one for one in self.now.pending if self._may(one, verdict)), None)
            if waiting is None:
                return
            self.asked.append(waiting.kind)
            self._settle(waiting, verdict)
            self.go_on()

    def _may(self, pending: Pending, verdict: Verdict) -> bool:
        return verdict is not Verdict.EXPIRE or pending.kind is not GateKind.IN_DOUBT

    def _settle(self, pending: Pending, verdict: Verdict) -> None:
        if pending.kind in FRAME_GATES:
            return self._say(pending, Verdict.CONTINUE)
        if pending.kind is GateKind.IN_DOUBT:
            self.clock += timedelta(hours=1)
            return self._say(pending, IN_DOUBT[verdict])
        if verdict is Verdict.EXPIRE:
            assert pending.expires_at is not None
            self.clock = max(self.clock, pending.expires_at)
            return self.expire()
        return self._say(pending, verdict)

    def _say(self, pending: Pending, verdict: Verdict) -> None:
        self.decide(pending.gate, Decision(verdict=verdict, by="bea", reason="as it is"))


def state_of(document: dict[str, Any]) -> Continuation:
    """The stored state, which may refer to the stored entries."""
    journal = document["journal"]
    return decode_continuation(document["continuation"], lambda position: journal[position - 1])


def folded(document: dict[str, Any], run: Continuation) -> Continuation:
    """The state that the entries of the document give."""
    now = initial(run.run)
    for text in document["journal"]:
        entry = decode_entry(text)
        now = step(now, entry.events, head="", at=entry.at)
    return now
