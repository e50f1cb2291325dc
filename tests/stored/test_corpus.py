"""Stored documents are read, and their runs continue and end as before.

`CORPUS=write python -m pytest tests/stored` writes those of the present schema again. `artificial` has documents that
no release wrote: of a schema before the first one, and of one after the present.
"""

import json
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agents.sdk.spec import AgentSpec
from agents.testing.worker import MemoryWorker
from runtime.core.documents import codec, continuations
from runtime.core.documents.codec import UPCASTERS, Document
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.run.retries import recover
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.core.values.errors import NewerSchema, Unreadable
from runtime.core.values.verdicts import FRAME_GATES
from runtime.reads.journal import build_unreadable_sql
from runtime.store.tables.signals import ResumeSignal
from tests.stored.scenarios import PICTURE, SCENES, written

FOLDER = Path(__file__).parent
PRESENT = FOLDER / str(codec.SCHEMA) / "runs.json"

if os.environ.get("CORPUS") == "write":
    PRESENT.write_text(json.dumps(dict(written()), indent=1) + "\n")

RUNS: dict[str, dict[str, Any]] = json.loads(PRESENT.read_text())
OLDER: dict[str, Any] = json.loads((FOLDER / "artificial" / "older.json").read_text())
NEWER: dict[str, Any] = json.loads((FOLDER / "artificial" / "newer.json").read_text())
VERDICTS = (Verdict.APPROVE, Verdict.DENY, Verdict.EXPIRE)
REFUNDED = ("refund success", "refund denied", "refund denied")
PRICED = tuple(f"price success, {end}" for end in REFUNDED)

# How a scene ends if all its approvals end alike: approved, denied or expired. A call in doubt is then run again or
# given up; it does not expire.
ENDS: dict[str, tuple[str | None, ...]] = {
    **dict.fromkeys(SCENES, REFUNDED),
    **dict.fromkeys(("approval", "hold"), PRICED),
    "bound": tuple(f"{end}, scrap success" for end in REFUNDED),
    "judged": ("spend success", "spend denied", "spend denied"),
    "previewed": ("scrap success", "scrap denied", "scrap denied"),
    "question": ("ask_person success", "ask_person denied", "ask_person denied"),
    "two_approvals": tuple(f"{end}, close {end.split()[-1]}" for end in PRICED),
    **dict.fromkeys(("nested_approval", "listed", "bounded"), ("desk success",) * 3),
    "in_doubt": ("post success", "post failed", None),
    "call_started": ("post success", "post failed", None),
    "call_retrying": ("book success",) * 3,
    "model_retrying": ("price success",) * 3,
    "cancelling": ("no longer needed",) * 3,
}
MAX_GATES = 10
IN_DOUBT = {Verdict.APPROVE: Verdict.RUN_AGAIN, Verdict.DENY: Verdict.GIVE_UP}


class Heir(MemoryWorker):
    """A worker that never heard of a run takes its document up, with people who say one thing at every approval.

    `asked` lists the kind of every gate that a person or its expiry decided, in order.
    """

    def __init__(self, spec: AgentSpec, document: dict[str, Any]) -> None:
        super().__init__(spec, (), ())
        self.asked: list[GateKind] = []
        self.now = state_of(document)
        self.journal = list(document["journal"])
        self.clock = datetime.fromisoformat(document["clock"])
        self._approvals.show([PICTURE.validate_python(gate) for gate in document["gates"]])

    def resume(self) -> None:
        if self.now.paused is not None:
            self.advance(ResumeSignal(id=2000, by="ada"))
        self.advance(*recover(self.now))
        self.go_on()
        for wait in self.waiting():
            self.send(wait.event, "e-1", wait.match)
        self.go_on()

    def meet(self, verdict: Verdict) -> None:
        """Let everything be decided until the run is over, or nothing that may be said is left."""
        expires = verdict is Verdict.EXPIRE
        while not self.now.ended and len(self.asked) < MAX_GATES:
            pending = [
                one for one in self.now.pending if not expires or one.kind is not GateKind.IN_DOUBT
            ]
            if not pending:
                return
            self.asked.append(pending[0].kind)
            self._settle(pending[0], verdict)
            self.go_on()

    def _settle(self, pending: Pending, verdict: Verdict) -> None:
        if pending.kind in FRAME_GATES:
            verdict = Verdict.CONTINUE
        elif pending.kind is GateKind.IN_DOUBT:
            self.clock += timedelta(hours=1)
            verdict = IN_DOUBT[verdict]
        elif pending.kind is GateKind.QUESTION and verdict is Verdict.APPROVE:
            verdict = Verdict.ANSWER
        elif verdict is Verdict.EXPIRE:
            assert pending.expires_at is not None
            self.clock = max(self.clock, pending.expires_at)
            return self.expire()
        self.decide(pending.gate, Decision(verdict=verdict, by="bea", reason="as it is"))
        return None


def state_of(document: dict[str, Any], form: str = "continuation") -> Continuation:
    journal = document["journal"]
    return continuations.decode_continuation(document[form], lambda position: journal[position - 1])


def folded(document: dict[str, Any], run: Continuation) -> Continuation:
    now = make_initial_state(run.run)
    for text in document["journal"]:
        entry = codec.decode_entry(text)
        now = step(now, entry.events, head="", at=entry.at)
    return now


def upcast_0(document: Document) -> Document:
    """In the artificial schema 0 a requester was called `asker`."""
    if "events" in document:
        return {**document, "events": [_with_requester(event) for event in document["events"]]}
    return _with_requester(document)


def _with_requester(fields: Document) -> Document:
    return {"requester" if name == "asker" else name: value for name, value in fields.items()}


each = pytest.mark.parametrize("name", SCENES)


@each
def test_a_stored_run_is_read_and_written_as_it_was(name: str) -> None:
    document = RUNS[name]
    now = state_of(document)
    assert folded(document, now) == now
    assert now.position == len(document["journal"])
    assert continuations.encode_continuation(now) == document["continuation"]
    if name != "given":  # a fork has messages of another run
        assert '"told":{' in document["brief"]
        assert state_of(document, "brief") == now
    for text in document["journal"]:
        entry = codec.decode_entry(text)
        assert codec.encode_stored_text(codec.encode_entry(entry)) == text
        assert re.match(codec.build_readable_pattern(), text), "a decision would be refused"


@each
@pytest.mark.parametrize("verdict", VERDICTS, ids=str)
def test_a_stored_run_goes_on_to_its_end(name: str, verdict: Verdict) -> None:
    _goes_on(SCENES[name].spec(), RUNS[name], verdict, ENDS[name][VERDICTS.index(verdict)])


def _goes_on(
    spec: AgentSpec, document: dict[str, Any], verdict: Verdict, outcome: str | None
) -> None:
    waited = [pending.kind for pending in state_of(document).pending]
    heir = Heir(spec, document)
    heir.resume()
    heir.meet(verdict)
    assert heir.now.outcome == outcome
    if outcome is None:
        assert [pending.kind for pending in heir.now.pending] == [GateKind.IN_DOUBT]
    else:
        assert heir.now.ended
    started = [
        made.tool for made in heir.calls if made.tool in ("refund", "close", "spend", "scrap")
    ]
    approved = heir.asked.count(GateKind.APPROVAL) if verdict is Verdict.APPROVE else 0
    assert len(started) == len(set(started)) == approved
    assert [kind for kind in waited if kind is GateKind.APPROVAL] == [
        kind for kind in heir.asked[: len(waited)] if kind is GateKind.APPROVAL
    ]
    assert folded({"journal": heir.journal}, heir.now) == heir.now


@pytest.mark.parametrize("verdict", VERDICTS, ids=str)
def test_a_run_of_an_older_schema_goes_on_to_its_end(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    with pytest.raises(Unreadable, match="schema 0 is unknown"):
        state_of(OLDER)
    monkeypatch.setitem(UPCASTERS, 0, upcast_0)
    now = state_of(OLDER)
    assert state_of(OLDER, "brief") == folded(OLDER, now) == now
    assert (now.requester, now.origin) == ("ada", ("ada",))
    assert all(re.match(codec.build_readable_pattern(), text) for text in OLDER["journal"])
    _goes_on(SCENES["approval"].spec(), OLDER, verdict, ENDS["approval"][VERDICTS.index(verdict)])


def test_a_run_of_a_newer_schema_is_left_as_it_is() -> None:
    for form in ("continuation", "brief"):
        with pytest.raises(NewerSchema):
            state_of(NEWER, form)
    document = RUNS["approval"]
    heir = Heir(SCENES["approval"].spec(), document)
    heir.journal.append(NEWER["journal"][-1])
    kept = list(heir.journal)
    with pytest.raises(NewerSchema):
        heir._take_over()
    assert (heir.journal, heir.calls) == (kept, [])
    assert all(codec.encode_stored_text(text) == text for text in NEWER["journal"])
    pattern = codec.build_readable_pattern()
    assert not any(re.match(pattern, text) for text in NEWER["journal"])
    assert f"!~ '{pattern}'" in build_unreadable_sql("run")
