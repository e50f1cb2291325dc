"""Seeded walks through the core: a world that answers every planned effect at random, and keeps the history."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from runtime.core.run import events, planning
from runtime.core.run.continuation import Call, Continuation, FrameState, Phase
from runtime.core.run.events import Event, GateOpened
from runtime.core.run.forks import fork_document, is_quiescent
from runtime.core.run.frames import cut_point, needs_memory_summary
from runtime.core.run.gates import find_gate_of_call
from runtime.core.run.planning import Command, plan
from runtime.core.run.reducer import evolve, make_initial_state
from runtime.core.run.retries import (
    on_no_reply,
    on_not_performed,
    on_unknown,
    on_worker_lost,
    recover,
)
from runtime.core.values.budgets import Limit
from runtime.core.values.call_options import CallOptions, CompactionOptions
from runtime.core.values.enums import CallPreview, CallState, Edit, EffectClass, GateKind, Verdict
from runtime.core.values.ids import ROOT, compute_depth
from runtime.core.values.verdicts import BEFORE_CALL, FRAME_GATES, VERDICTS_AT
from tests.core.run.events import AT, begun, opened, options

MAX_EVENTS = 400
COMPACTION = CompactionOptions(messages=4)


TOLD = events.Remembered(run=UUID(int=7), kind="answered", by="agent-0", at=AT, digest="sha256:t")
_EDIT = Edit(args={"edited": True}, digest="sha256:edited")


class Walk:
    """One run from its start to its end, or to where only an in-doubt gate is left."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.restless = self.random.random() < 0.5  # halted now and then
        self.now = make_initial_state(UUID(int=self.random.getrandbits(128)))
        self.states: list[Continuation] = [self.now]
        self.history: list[Event] = []
        given: dict[str, Any] = (
            {"thread": "t", "memory": (TOLD,), "memory_tokens": 90} if seed % 10 == 7 else {}
        )
        self._add(begun(agent="agent-0", input={"seed": seed, "ä": [1.5, None]}, **given))
        self.travels = random.Random(f"travels of {seed}")
        self.paces = random.Random(f"paces of {seed}")
        self.letters = random.Random(f"letters of {seed}")
        self.retries = random.Random(f"retries of {seed}")
        self.denials = random.Random(f"denials of {seed}")
        self.edits = random.Random(f"edits of {seed}")
        self.previews = random.Random(f"previews of {seed}")
        self.questions = random.Random(f"questions of {seed}")
        self.asking = random.Random(f"asking of {seed}")
        self.extensions = random.Random(f"extensions of {seed}")
        self.extends = seed % 10 == 5
        self.late = random.Random(f"late outcomes of {seed}")
        self.limits = random.Random(f"limits of {seed}")
        if seed % 10 == 3:
            self._add(self._fork_of(Walk(10 * seed + 4)))
        while len(self.history) < MAX_EVENTS and (choices := self._travels() or self._next()):
            self._add(self.random.choice(choices))

    def _fork_of(self, other: "Walk") -> Event:
        now = self.travels.choice([state for state in other.states if is_quiescent(state)])
        return events.Forked(
            of=other.now.run, position=now.position, by="eve", state=fork_document(now)
        )

    def _travels(self) -> list[Event]:
        """Now and then a run leaves, and most of those that leave arrive somewhere. A failed one is tried again."""
        if self.now.phase is Phase.STARTED and is_quiescent(self.now):
            return [events.Exported(by="eve")] if self.travels.random() < 0.004 else []
        if self.now.phase is Phase.EXPORTED and self.travels.random() < 0.7:
            return [events.Imported(by="eve", manifest="{}", key="k", signature="00")]
        if self.now.phase is Phase.CANCELLING and not self.now.cancelled_by:
            return self._closures()
        if self.now.phase is Phase.FAILED and self.retries.random() < 0.8:
            return [events.Retried(by="ada", reason="mended")]
        return []

    def _closures(self) -> list[Event]:
        return [
            events.GateClosed(gate=one.gate, reason="over", **_place(one))
            for one in self.now.pending
        ]

    def _add(self, event: Event) -> None:
        self.now = evolve(self.now, event)
        self.history.append(event)
        self.states.append(self.now)

    def _next(self) -> list[Event]:
        """What could happen; in a pause in which nothing can, its end. Elsewhere nothing of ours does."""
        if self.now.phase is Phase.EXPORTED:
            return []
        return self._options() or ([events.Resumed(by="bea")] if self.now.is_paused else [])

    def _options(self) -> list[Event]:
        choices = [event for effect in plan(self.now) for event in self._answers(effect)]
        for frame in self.now.frames.values():
            for call in frame.calls:
                if call.state is CallState.STARTED:
                    choices += self._outcomes(frame.id, call)
                if call.state is CallState.UNKNOWN and self.late.random() < 0.3:
                    choices += self._late(frame.id, call)
        choices += [events.WaitEnded(**_place(wait)) for wait in self.now.retries()]
        choices += self._ends_of_waits()
        choices += [
            self._edited(
                events.GateDecided(
                    gate=pending.gate,
                    verdict=verdict,
                    by="bea",
                    reason="because",
                    stands=verdict is Verdict.DENY and self.denials.random() < 0.9,
                    **_place(pending),
                )
            )
            for pending in self.now.pending
            for verdict in (*VERDICTS_AT[pending.kind], Verdict.EXPIRE)
            if pending.kind in BEFORE_CALL or verdict is not Verdict.EXPIRE
            if verdict is not Verdict.EDIT
        ]
        if self.random.random() < 0.05:
            choices += recover(self.now)
        if self.random.random() < 0.03:
            choices += self._releases()
        if self.now.phase is Phase.STARTED:
            choices = self._of_a_live_run(choices)
        elif self.now.phase is Phase.CANCELLING:
            choices += self._closures()
        extended = self._extension()
        return self._pace() or self._letter() or self._question() or extended or choices

    def _edited(self, event: events.GateDecided) -> events.GateDecided:
        """Sometimes approve with changes instead."""
        if event.verdict is not Verdict.APPROVE or self.edits.random() > 0.2:
            return event
        return replace(event, verdict=Verdict.EDIT, edit=_EDIT)

    def _of_a_live_run(self, choices: list[Event]) -> list[Event]:
        if self.random.random() < self._unrest():
            choices = self._halts() or choices
        if self.random.random() < self._unrest() / 4:
            choices = [self._shortage()]
        elif (short := self.now.short) is not None:
            amounts: Any = {one.limit: self.random.choice([1, None]) for one in short.limits}
            if {one.frame for one in short.limits} <= {None, *self.now.frames}:
                choices.append(events.BudgetGranted(gate=short.gate, by="bea", amounts=amounts))
        if self.random.random() < self._impatience():
            by = "ada" if self.retries.random() < 0.4 else ""  # by itself, it fails
            return [events.Cancelling(by=by, reason="enough")]
        return choices

    def _outcomes(self, frame: str, call: Call) -> list[Event]:
        place: dict[str, Any] = {"frame": frame, "call": call.id}
        return [
            events.ToolReturned(attempt=call.attempt, result={"ok": True}, **place),
            events.ToolFailed(attempt=call.attempt, error="no", **place),
            on_unknown(frame, call, "it raised", at=AT, jitter=0.5),
            on_not_performed(frame, call, "busy", retry_after=None, at=AT, jitter=0.5),
            on_worker_lost(frame, call),
        ]

    def _late(self, frame: str, call: Call) -> list[Event]:
        asked = find_gate_of_call(self.now, frame, call.id)
        gate = None if asked is None else asked.gate
        place: dict[str, Any] = {"frame": frame, "call": call.id, "attempt": call.attempt}
        returned = events.OutcomeArrived(
            gate=gate, outcome="returned", at=AT, result={"ok": True}, **place
        )
        return [returned, replace(returned, outcome="failed", result=None, error="no")]

    def _ends_of_waits(self) -> list[Event]:
        ending = self.now.phase is Phase.CANCELLING
        outcomes: Any = ("closed",) if ending else ("arrived", "timed_out")
        ends: list[Event] = [
            events.WaitEnded(outcome=outcome, result={"n": 1}, **_place(wait))
            for wait in self.now.waiting()
            for outcome in outcomes
        ]
        for wait in () if ending else self.now.waiting():
            call = self.now.call(wait.frame, str(wait.call))
            if call.terms is not None and call.terms.waits == "instance":
                ends += self._of_an_instance(call, _place(wait))
        return ends

    def _of_an_instance(self, call: Call, place: dict[str, Any]) -> list[Event]:
        """What follows for a call that an instance performs: its start, then its failure or silence."""
        if call.started_at is None:
            return [events.WaitStarted(until=AT, at=AT, **place)]
        return [
            events.WaitEnded(outcome="refused", result="no", **place),
            events.OutcomeUnknown(attempt=call.attempt, error="no report", **place),
        ]

    def _pace(self) -> list[Event]:
        """Now and then a pause; it always ends, sooner or later."""
        if self.now.is_paused and self.paces.random() < 0.3:
            return [events.Resumed(by="bea")]
        if self.now.phase is Phase.STARTED and self.now.paused is None:
            return [events.Paused(by="ada", reason="")] if self.paces.random() < 0.01 else []
        return []

    def _letter(self) -> list[Event]:
        """Now and then a message; likelier once the root has answered, which is rare."""
        root = self.now.root
        answered = root is not None and root.state is FrameState.ANSWERED
        if self.now.phase is Phase.STARTED and self.letters.random() < (0.1 if answered else 0.01):
            return [events.MessageReceived(by="ada", text="mind the gap")]
        return []

    def _releases(self) -> list[Event]:
        change = events.AgentChange(part="tool t: effect", before="read", after="write", asks=True)
        return [
            events.AgentChanged(
                frame=frame.id,
                before=frame.fingerprint,
                fingerprint=f"{frame.fingerprint}+",
                prompt="sha256:q",
                changes=(change,),
                writes=tuple(sorted({call.tool for call in frame.calls})[:1]),
            )
            for frame in self.now.frames.values()
        ]

    def _question(self) -> list[Event]:
        """Now and then a person asks about a call that waits."""
        if self.now.phase is not Phase.STARTED or self.asking.random() > 0.1:
            return []
        return [
            events.QuestionAsked(
                gate=one.gate,
                question=UUID(int=self.asking.getrandbits(128)),
                by="bea",
                text="Why?",
                **_place(one),
            )
            for one in self.now.pending
            if one.kind is GateKind.APPROVAL
        ]

    def _extension(self) -> list[Event]:
        """Now and then a person extends the deadline of a gate."""
        started = self.extends and self.now.phase is Phase.STARTED
        if not started or self.extensions.random() > 0.1:
            return []
        return [
            events.GateExtended(
                gate=one.gate,
                by="bea",
                reason="later",
                before=one.expires_at,
                until=one.expires_at + timedelta(days=1),
                **_place(one),
            )
            for one in self.now.pending
            if one.expires_at is not None
        ]

    def _answers(self, effect: Command) -> list[Event]:
        match effect:
            case planning.OpenFrame():
                steps = self.random.choice([None, ("first", "then")])
                compaction = self.random.choice([None, COMPACTION])
                given = {"agent": effect.agent, "input": effect.input}
                given["item"] = effect.frame.endswith(".1")  # the second call of a turn
                return [opened(effect.frame, plan=steps, compaction=compaction, **given)]
            case planning.CallModel(summary=True):
                return self._summaries(effect.frame)
            case planning.CallModel():
                return self._replies(effect.frame)
            case planning.AnswerInquiry():
                [asked] = [one for one in self.now.questions if one.id == effect.inquiry]
                of: dict[str, Any] = {**_place(asked), "question": asked.id}
                return [
                    events.QuestionAnswered(text="Because.", usage={"input_tokens": 3}, **of),
                    events.QuestionFailed(error="no answer", **of),
                    events.AnswerDropped(
                        frame=asked.frame, question=asked.id, usage={"input_tokens": 2}
                    ),
                ]
            case planning.CheckCall():
                return self._judgements(effect)
            case planning.StartTool():
                return self._starts(effect)
            case planning.StartWait():
                event = self.letters.choice(["", "signed"])
                return [
                    events.WaitStarted(until=AT, event=event, match={}, **_place(effect)),
                    events.WaitEnded(outcome="refused", result="past", **_place(effect)),
                ]
            case planning.OpenInDoubt():
                terms = self.now.call(effect.frame, effect.call).terms
                assert terms is not None
                return [self._gate(GateKind.IN_DOUBT, effect.frame, effect.call, terms)]
            case planning.FailFrame():
                return [events.ModelFailed(frame=effect.frame, error=effect.error)]
            case planning.CloseFrame():
                frame = self.now.frame(effect.frame)
                end: Any = "answered" if frame.state is FrameState.ANSWERED else "failed"
                content = frame.outcome or ""
                return [events.FrameClosed(frame=frame.id, outcome=end, content=content)]
            case planning.CancelRun():
                return [events.Cancelling(by="", reason=effect.reason)]
            case planning.EndRun():
                return [self._end()]

    def _end(self) -> Event:
        if self.now.phase is Phase.CANCELLING:
            by_a_person = self.now.cancelled_by
            return events.Cancelled(reason="enough") if by_a_person else events.Failed(error="no")
        root = self.now.frame(ROOT)
        outcome = root.outcome or ""
        answered = root.state is FrameState.ANSWERED
        return events.Completed(output=outcome) if answered else events.Failed(error=outcome)

    def _starts(self, effect: planning.StartTool) -> list[Event]:
        """Mostly its start; now and then the call differs from the approved one."""
        if self.previews.random() < 0.05:
            return [self._preview(effect)]
        call = self.now.call(effect.frame, effect.call)
        if call.gate and self.random.random() < 0.1:
            assert call.terms is not None
            return [
                self._gate(self._before(), effect.frame, effect.call, call.terms),
                events.CallRefused(reason="gone", **_place(effect)),
            ]
        return [events.ToolStarted(attempt=effect.attempt, at=AT, **_place(effect))]

    def _replies(self, frame: str) -> list[Event]:
        turn = self.now.frame(frame).turn
        if turn >= 4:
            return [self._reply(frame, 0)]
        if self.random.random() < 0.05:
            return self._failures(frame)
        return [self._reply(frame, self.random.choice([0, 1, 2, 2, 2, 3]))]

    def _failures(self, frame: str) -> list[Event]:
        known: Any = {"retry_after": 1.0, "at": AT, "jitter": 0.5, "timeout": timedelta(days=1)}
        again = self.random.random() < 0.5
        return [
            on_no_reply(self.now.frame(frame), "overloaded", retryable=again, **known),
            events.ModelFailed(frame=frame, error="no"),
        ]

    def _summaries(self, frame: str) -> list[Event]:
        if needs_memory_summary(self.now, self.now.frame(frame)):
            usage = {"input_tokens": 4}
            return [events.MemorySummarised(frame=frame, at=AT, digest="sha256:s", usage=usage)]
        until = cut_point(self.now.frame(frame))
        usage = {"input_tokens": 5}
        summary = events.Compacted(
            frame=frame, until=until, summary="so far", by="model", usage=usage
        )
        return [summary] if self.random.random() < 0.95 else self._failures(frame)

    def _reply(self, frame: str, calls: int) -> events.ModelReplied:
        """Mostly of a model that was given every message; now and then one came while it was at work."""
        unheard = len(self.now.unheard) if frame == ROOT else 0
        heard = unheard if self.letters.random() < 0.7 else self.letters.randint(0, unheard)
        return events.ModelReplied(
            frame=frame,
            reply={"parts": [calls]},
            text="" if calls else f"done by {frame}",
            calls=tuple(
                events.Proposal(tool=f"tool_{n}", args={"n": n, "x": "é\u202e"})
                for n in range(calls)
            ),
            usage={"input_tokens": 3, "output_tokens": 2},
            heard=heard,
            at_once=self.limits.choice([1, 2]) if calls and self.limits.random() < 0.2 else 0,
        )

    def _judgements(self, effect: planning.CheckCall) -> list[Event]:
        if self.previews.random() < 0.05:
            return [self._preview(effect)]
        may_nest = compute_depth(effect.frame) < 3
        effect_class = self.random.choice(list(EffectClass))
        digest = f"sha256:{self.denials.random()}"
        delegate = "agent-n" if may_nest and self.random.random() < 0.4 else None
        terms = options(effect_class, digest=digest, delegate=delegate)
        chance = 0.5 if terms.delegate is not None else self.letters.random()
        if chance < 0.04:
            terms = replace(terms, waits="instance", effect=EffectClass.WRITE)
        elif chance < 0.1:
            terms = replace(terms, waits="event", effect=EffectClass.READ)
        elif chance > 0.9:
            terms = replace(terms, answers=True)
        judgements: list[Event] = [
            events.CallAdmitted(terms=terms, **_place(effect)),
            self._gate(self._before(), effect.frame, effect.call, terms),
            events.CallRefused(reason="no such tool", **_place(effect)),
        ]
        return judgements[: 3 if self.random.random() < 0.1 else 2]

    def _preview(self, effect: planning.CheckCall | planning.StartTool) -> Event:
        preview = CallPreview(at=AT, digest="sha256:d", shown={"n": 1}, material="sha256:m")
        return events.CallPreviewed(preview=preview, **_place(effect))

    def _impatience(self) -> float:
        if not any(pending.kind in FRAME_GATES for pending in self.now.pending):
            return 0.003
        return 0.9 if self._strained() else 0.03

    def _strained(self) -> bool:
        return any(
            frame.state in (FrameState.RETRYING, FrameState.ANSWERED, FrameState.FAILED)
            for frame in self.now.frames.values()
        )

    def _unrest(self) -> float:
        """Return the probability of a hold now, which is higher while a frame waits, since that is rare."""
        if not self.restless:
            return 0.0
        return 0.4 if self._strained() else 0.04

    def _halts(self) -> list[Event]:
        taken = {(pending.frame, pending.kind) for pending in self.now.pending}
        return [
            self._gate(kind, frame, "", None)
            for frame in self.now.frames
            for kind in sorted(FRAME_GATES)
            if (frame, kind) not in taken
        ]

    def _shortage(self) -> events.BudgetExceeded:
        frame = self.random.choice([None, *self.now.frames])
        limit = self.random.choice(list(Limit))
        gate = UUID(int=self.random.getrandbits(128))
        return events.BudgetExceeded(gate=gate, frame=frame, limit=limit, used=3, allowed=2, at=AT)

    def _before(self) -> GateKind:
        return GateKind.QUESTION if self.questions.random() < 0.1 else GateKind.APPROVAL

    def _gate(self, kind: GateKind, frame: str, call: str, terms: CallOptions | None) -> GateOpened:
        gate = UUID(int=self.random.getrandbits(128))
        due = AT if kind in BEFORE_CALL else None
        return GateOpened(gate=gate, kind=kind, frame=frame, call=call, terms=terms, expires_at=due)


def _place(one: Any) -> dict[str, Any]:
    return {"frame": one.frame, "call": one.call}
