"""Documents stored by any version are read by this one, and their runs continue and end as before.

`CORPUS=write python -m pytest tests/stored` writes the documents of the present schema again; those of
earlier schemas stay as the code of their time wrote them.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from agents.sdk import Holds
from agents.sdk.spec import AgentSpec
from agents.testing import call
from agents.testing.approvals import Approvals
from agents.testing.worker import BEGINNING, Worker
from agents.tools.questions import ask_person
from agents.tools.timers import wait_for
from runtime.control.edit import edit, is_previewed
from runtime.core.continuation import Continuation, GivenReply, Pending
from runtime.core.documents import codec, compression
from runtime.core.documents.conversations import (
    CONSEQUENCES,
    DECISIONS,
    DIALOGUE,
    ORIGINS,
    PROMPTS,
    REPLIES,
    REVIEWS,
    Conversations,
)
from runtime.core.enums import FRAME_GATES, Decision, FailureCause, GateKind, Verdict
from runtime.core.errors import NewerSchema
from runtime.core.events import (
    AgentChanged,
    AllowanceUse,
    CallAdmitted,
    CallPreviewed,
    Event,
    ForkChange,
    Forked,
    GateDecided,
    GateOpened,
    MessageReceived,
    ModelReplied,
    Proposal,
    QuestionAsked,
    Remembered,
    RetryScheduled,
    RunStarted,
)
from runtime.core.machine.calls.fork_changes import changed
from runtime.core.machine.forks import forked, without_permissions
from runtime.core.machine.replay import initial, recover, step
from runtime.ports.approvals import Allowed
from runtime.store.tables.signals import MessageSignal, PauseSignal, ResumeSignal
from tests.stored.scenarios import (
    INPUT,
    NOTE,
    PAY,
    PICTURE,
    SCENES,
    Scene,
    be_busy,
    boss,
    desk,
    scrap,
    spend,
    written,
)

FOLDER = Path(__file__).parent
WAIT = call("wait_for", event="paid", match=INPUT, until="2030-01-05T09:00:00Z")
PAUSED = PauseSignal(id=1000, by="ada", reason="the books are being closed")
PRESENT = SCENES | {
    "hold": Scene(spec=lambda: desk(call("price", **INPUT), PAY, holds=Holds(every=1))),
    "paused": Scene(spec=lambda: desk(PAY), then=lambda worker: worker.advance(PAUSED)),
    "waiting": Scene(
        spec=lambda: desk(WAIT, PAY, more=[wait_for]), shows=lambda now: bool(now.all_waiting())
    ),
    "message": Scene(
        spec=lambda: desk(PAY),
        then=lambda worker: worker.write(by="ada", text="it was the wrong order"),
    ),
}


def _decided(verdict: Verdict, **more: Any) -> Callable[[Worker], None]:
    def decide(worker: Worker) -> None:
        [pending] = worker.now.pending
        worker.decide(pending.gate, Decision(verdict=verdict, by="bea", **more))
        worker.go_on()

    return decide


def _edited(args: dict[str, Any]) -> Callable[[Worker], None]:
    def decide(worker: Worker) -> None:
        gate = worker.shown[worker.now.pending[0].gate]
        shown = {name: getattr(gate, name) for name in ("tool", "schema", "path", "effect", "args")}
        edited = edit(**shown, given=args)
        if is_previewed(gate.preview):
            edited = replace(edited, preview=worker.preview_edit(gate, edited.args))
        _decided(Verdict.EDIT, edit=edited)(worker)

    return decide


def _allowed(worker: Worker) -> None:
    use = AllowanceUse(id=UUID(int=1), number=1, of=2, by=("bea", "cora"))
    allowed = Allowed(use=use, proof=("{}", "00", "k1"))
    allow = lambda shown, taken: allowed if shown.args["euros"] == 20 else None  # noqa: E731
    with patch.object(Approvals, "allow", side_effect=allow):
        _decided(Verdict.REQUEST_CHANGES, reason="pay 30")(worker)
        _decided(Verdict.APPROVE)(worker)


def _forked(worker: Worker) -> None:
    """Make the run a fork in which Eve gave the next reply."""
    pay = (Proposal(tool="refund", args={"number": "A-1", "euros": 30}),)
    reply = GivenReply(by="eve", text="30 will do.", calls=pay)
    place = ForkChange(kind="reply", frame="0")
    now = changed(without_permissions(worker.now), place, reply, "eve")
    fork = Forked(of=worker.now.run, position=1, by="eve", state=forked(now), change=place)
    worker.journal.clear()
    worker._ready.clear()
    worker.now = initial(UUID(int=9))
    worker.advance(RunStarted(agent="desk", input=INPUT, requester="eve"), fork)
    worker.go_on()


# Documents of schema 9 only: after a decision, the model pays another sum.
AGAIN = {
    "denied": Scene(  # the model repeats the denied call first
        spec=lambda: desk(PAY, PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.DENY, reason="too much"),
    ),
    "answered": Scene(
        spec=lambda: desk(PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.ANSWER, result={"paid": "by hand"}),
    ),
}
# Documents of schema 10 only.
JUDGED = {
    "judged": Scene(spec=lambda: desk(call("spend", euros=30), more=[spend])),
    "previewed": Scene(spec=lambda: desk(call("scrap", **INPUT), more=[scrap])),
    "edited": Scene(  # the model repeats the call that a person changed
        spec=lambda: desk(PAY, PAY), then=_edited({"number": "A-1", "euros": 30})
    ),
}
# Documents of schema 11 only.
DISCUSSED = {
    "revised": Scene(  # the model repeats the call first
        spec=lambda: desk(PAY, PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.REQUEST_CHANGES, reason="pay 30"),
    ),
    "allowed": Scene(  # an allowance passes the payment after that
        spec=lambda: desk(
            *(call("refund", number="A-1", euros=euros) for euros in (40, 30, 20, 10))
        ),
        then=_allowed,
    ),
    "asked": Scene(  # the next worker answers
        spec=lambda: desk(PAY),
        then=lambda worker: worker.ask(gate=worker.now.pending[0].gate, by="bea", text="Why?"),
    ),
}
TALKS = {
    "question": Scene(
        spec=lambda: desk(call("ask_person", question="Which one?"), more=[ask_person()])
    ),
}
# Documents of schema 12 only. Of the first, the first entry has its number, the continuation has none of it.
TOLD = Remembered(
    run=UUID(int=7), kind="answered", by="desk", at=BEGINNING, digest="sha256:" + "0" * 64
)
REMARK = MessageSignal(id=1001, by="bea", text="it was the wrong order", reviewer=True)
MADE = {
    "made": Scene(spec=lambda: desk(PAY), makers=("dora",)),
    "remembering": Scene(spec=lambda: desk(PAY), thread="t", memory=(TOLD,)),
    "reviewed": Scene(spec=lambda: desk(PAY), then=lambda worker: worker.advance(REMARK)),
    "rate_limited": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: now.root is not None,
        then=lambda worker: be_busy(worker, cause=FailureCause.LIMIT, model="openai:a"),
    ),
    "cut_off": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: now.root is not None,
        then=lambda worker: be_busy(worker, partial="The pri", tokens=2, model="openai:a"),
    ),
    "planned": Scene(spec=lambda: desk(call("plan", write=["Pay", "Say so"]), PAY, plan=True)),
}
# Documents of schema 13 only.
WORDED = {"prompted": Scene(spec=lambda: replace(desk(PAY), prompt_name="shop/desk"))}
LISTED = {"listed": Scene(spec=lambda: replace(boss(), items=True))}
SAID = {"said": Scene(spec=lambda: desk(call("note", text="Soon."), PAY, more=[NOTE]))}
# Documents of schema 14 only, the second of a fork: it is never brief.
BOUNDED = {"bounded": Scene(spec=lambda: replace(boss(), items=True, at_once=1))}
GIVEN = {
    "given": Scene(spec=lambda: desk(PAY), shows=lambda now: now.root is not None, then=_forked)
}
# Documents of schema 15 only: of one entry, the continuation has none of it.
BOUND = {
    "bound": Scene(
        spec=lambda: desk(call("scrap", **INPUT), PAY, more=[scrap]),
        then=_edited({"number": "A-2"}),
    )
}
LATER = {
    DECISIONS: AGAIN,
    REVIEWS: JUDGED,
    DIALOGUE: DISCUSSED | TALKS,
    ORIGINS: MADE,
    PROMPTS: WORDED | LISTED | SAID,
    REPLIES: BOUNDED | GIVEN,
    CONSEQUENCES: BOUND,
}


def write() -> None:
    """Write the documents of the present schema; with a brief continuation; and with compressed entries as well."""
    for name, document in written(PRESENT):
        left = _brief(document)
        short = [compression.stored_text(text) for text in document["journal"]]
        shorter = document | {"schema": codec.BRIEF, "continuation": left}
        compressed = shorter | {"schema": compression.SCHEMA, "journal": short}
        for one in (document, shorter, compressed):
            _keep(name, one)
    for name, document in written(
        AGAIN | JUDGED | DISCUSSED | TALKS | MADE | WORDED | LISTED | SAID | BOUNDED | BOUND
    ):
        _keep(name, document)
        _keep(f"{name}_brief", document | {"continuation": _brief(document)})
    for name, document in written(GIVEN):
        _keep(name, document)


def _brief(document: dict[str, Any]) -> str:
    """Return the continuation of this document without what its entries tell."""
    conversations = Conversations()
    for text in document["journal"]:
        conversations.read(text)
    brief = conversations.brief(codec.decode_continuation(document["continuation"]))
    assert brief is not None
    return codec.encode_continuation(brief.state, brief.told)


def _keep(name: str, document: dict[str, Any]) -> None:
    place = FOLDER / str(document["schema"])
    place.mkdir(exist_ok=True)
    (place / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if os.environ.get("CORPUS") == "write":
    write()

DOCUMENTS = sorted(FOLDER.glob("[0-9]*/*.json"))
VERDICTS = (Verdict.APPROVE, Verdict.DENY, Verdict.EXPIRE)
REFUNDED = ("refund success", "refund denied", "refund denied")
PRICED = tuple(f"price success, {end}" for end in REFUNDED)

# How each scene ends if all its approvals end alike: approved, denied or expired. A call in doubt is then run again
# or given up; it does not expire.
ENDS: dict[str, tuple[str | None, ...]] = {
    **dict.fromkeys(("approval", "hold"), PRICED),
    **dict.fromkeys(
        (
            "paused",
            "waiting",
            "message",
            "edited",
            *AGAIN,
            *DISCUSSED,
            *MADE,
            *WORDED,
            *SAID,
            *GIVEN,
        ),
        REFUNDED,
    ),
    "bound": tuple(f"{end}, scrap success" for end in REFUNDED),
    "judged": ("spend success", "spend denied", "spend denied"),
    "previewed": ("scrap success", "scrap denied", "scrap denied"),
    "question": ("ask_person success", "ask_person denied", "ask_person denied"),
    "two_approvals": tuple(f"{end}, close {end.split()[-1]}" for end in PRICED),
    **dict.fromkeys(("nested_approval", *LISTED, *BOUNDED), ("desk success",) * 3),
    "in_doubt": ("post success", "post failed", None),
    "call_started": ("post success", "post failed", None),
    "call_retrying": ("book success",) * 3,
    "model_retrying": ("price success",) * 3,
    "cancelling": ("no longer needed",) * 3,
}
MAX_GATES = 10
IN_DOUBT = {Verdict.APPROVE: Verdict.RUN_AGAIN, Verdict.DENY: Verdict.GIVE_UP}


class Heir(Worker):
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


def state_of(document: dict[str, Any]) -> Continuation:
    journal = document["journal"]
    return codec.decode_continuation(document["continuation"], lambda place: journal[place - 1])


def folded(document: dict[str, Any], run: Continuation) -> Continuation:
    now = initial(run.run)
    for text in document["journal"]:
        entry = codec.decode_entry(text)
        now = step(now, entry.events, head="", at=entry.at)
    return now


# Whose continuation has another schema than one of its entries.
ALONE = {"made": codec.SCHEMA, "bound": REVIEWS}
each = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda one: f"{one.parent.name}-{one.stem}")


def test_every_schema_has_documents_of_every_scene() -> None:
    assert max(codec.HISTORY) == max(LATER)
    for schema in set(codec.HISTORY) - set(LATER):
        there = {path.stem for path in DOCUMENTS if path.parent.name == str(schema)}
        assert set(SCENES) <= there, f"schema {schema} has no documents: see CORPUS=write"
    later = (AGAIN, JUDGED, DISCUSSED, TALKS, MADE, WORDED, LISTED, SAID, BOUNDED, GIVEN, BOUND)
    assert set(ENDS) == {*PRESENT, *(name for scenes in later for name in scenes)}
    for schema, scenes in LATER.items():
        there = {path.stem for path in DOCUMENTS if path.parent.name == str(schema)}
        assert there == {*scenes, *(f"{name}_brief" for name in scenes if name not in GIVEN)}


@each
def test_a_document_keeps_its_meaning_in_the_present_schema(path: Path) -> None:
    document, schema = json.loads(path.read_text()), int(path.parent.name)
    compressed = schema == compression.SCHEMA
    alone = ALONE.get(path.stem.removesuffix("_brief"), schema)
    whole = alone if schema in LATER else codec.SCHEMA
    brief = schema in (codec.BRIEF, compression.SCHEMA) or path.stem.endswith("_brief")
    assert json.loads(document["continuation"])["schema"] == (codec.BRIEF if brief else alone)
    # A continuation alone refers to entries, and they alone are compressed.
    assert ('{"$":[' in document["continuation"]) is (schema == codec.REFERRING)
    assert ('"told":{' in document["continuation"]) is brief
    now = state_of(document)
    calls = [call for frame in now.frames.values() for call in frame.calls]
    answered = any(call.answered for call in calls)
    changed = any(denial.changes for denial in now.denials.values())
    asks = any(one.kind is GateKind.QUESTION for one in now.pending) or bool(now.questions)
    assert bool(now.reviewers) is path.stem.startswith("reviewed")
    limited = any(frame.outage and frame.outage.limited for frame in now.frames.values())
    assert bool(limited) is path.stem.startswith("rate_limited")
    assert (changed or asks) is (schema == DIALOGUE)
    assert ((bool(now.denials) and not changed) or answered) is (schema == DECISIONS)
    judged = any(call.terms and call.terms.risk for call in calls)
    new = judged or any(bool(call.edited or call.shown) for call in calls if schema != REPLIES)
    assert new is (schema in (REVIEWS, CONSEQUENCES))
    assert folded(document, now) == now
    assert now.position == len(document["journal"])
    again = codec.encode_continuation(now)
    assert json.loads(again)["schema"] == whole
    assert codec.decode_continuation(again) == now
    for text in document["journal"]:
        entry = codec.decode_entry(text)
        present = max(map(_schema_of, entry.events))
        assert json.loads(text)["schema"] == (schema if compressed else min(schema, present))
        assert json.loads(codec.encode_entry(entry))["schema"] == present
        assert codec.decode_entry(compression.stored_text(codec.encode_entry(entry))) == entry


def _schema_of(event: Event) -> int:
    if isinstance(event, Forked):
        return REPLIES
    if isinstance(event, GateDecided) and event.edit and event.edit.preview:
        return CONSEQUENCES
    if isinstance(event, ModelReplied) and (event.given_by or event.at_once):
        return REPLIES
    if getattr(event, "pinned", None) or getattr(event, "item", False):
        return PROMPTS
    if isinstance(event, CallAdmitted) and event.terms.tells:
        return PROMPTS
    if isinstance(event, MessageReceived) and (event.reviewer or event.cuts):
        return ORIGINS
    if isinstance(event, RunStarted) and (event.makers or event.thread):
        return ORIGINS
    if isinstance(event, RetryScheduled) and (
        event.limited or event.tokens or event.cause == "message"
    ):
        return ORIGINS
    if isinstance(event, CallAdmitted) and event.terms.plan:
        return ORIGINS
    if isinstance(event, GateOpened) and event.kind is GateKind.QUESTION:
        return DIALOGUE
    if isinstance(event, QuestionAsked) or getattr(event, "verdict", "") == "request_changes":
        return DIALOGUE
    if isinstance(event, GateDecided) and event.allowance:
        return DIALOGUE
    if isinstance(event, AgentChanged) and event.by:
        return DIALOGUE
    if isinstance(event, GateDecided) and (event.stands or event.verdict is Verdict.ANSWER):
        return DECISIONS
    terms = getattr(event, "terms", None)
    new = getattr(event, "edit", None) or (terms is not None and terms.risk)
    return REVIEWS if new or isinstance(event, CallPreviewed) else codec.SCHEMA


@each
@pytest.mark.parametrize("verdict", VERDICTS, ids=str)
def test_a_stored_run_goes_on_to_its_end(path: Path, verdict: Verdict) -> None:
    document = json.loads(path.read_text())
    waited = [pending.kind for pending in state_of(document).pending]
    heir = Heir(_scene(path).spec(), document)
    heir.resume()
    heir.meet(verdict)
    end = ENDS[path.stem.removesuffix("_brief")][VERDICTS.index(verdict)]
    assert heir.now.outcome == end
    if heir.now.outcome is None:
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


@each
def test_a_document_of_a_newer_schema_is_left_as_it_is(path: Path) -> None:
    document = json.loads(path.read_text())
    with pytest.raises(NewerSchema):
        codec.decode_continuation(_newer(document["continuation"]))
    heir = Heir(_scene(path).spec(), document)
    heir.journal.append(_newer(heir.journal[-1]))
    kept = list(heir.journal)
    with pytest.raises(NewerSchema):
        heir._take_over()
    assert (heir.journal, heir.calls) == (kept, [])


def _scene(path: Path) -> Scene:
    laters = AGAIN | JUDGED | DISCUSSED | TALKS | MADE | WORDED | LISTED | SAID | BOUNDED | GIVEN
    laters |= BOUND
    return (PRESENT | laters)[path.stem.removesuffix("_brief")]


def _newer(text: str) -> str:
    return json.dumps({**json.loads(text), "schema": max(codec.HISTORY) + 1})
