"""Executes one run in memory by the engine's rules: planning, admission, retries and recovery.

A list of journal entries in their stored form replaces the engine's tables. The state is restored from it after a
crash, and from the continuation's JSON after a wait at a gate. The handlers (schemas, sentences, tools, models),
`StepBuilder` and `Admission` are the real ones; the test plays people, time and crashes. Effects run one after the
other, in the order they are planned; the engine runs them at the same time.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.test import override_settings

from agents.catalogue.versions import PublishedVersion
from agents.effect_handler import AgentEffects
from agents.endpoints import SCRIPTED
from agents.registry import Registry, walk_family
from agents.sdk.spec import AgentSpec
from agents.testing import setup
from agents.testing.approvals import ApprovalStub
from runtime.core.documents import blobs
from runtime.core.documents.blobs import InlinedMessages, decode_blob
from runtime.core.documents.codec import decode_entry, encode_entry
from runtime.core.documents.continuations import decode_continuation, encode_continuation
from runtime.core.run.continuation import Phase
from runtime.core.run.events import Event, WaitStarted
from runtime.core.run.planning import StartTool
from runtime.core.run.reducer import Entry, make_initial_state, step
from runtime.core.run.retries import recover
from runtime.core.values.enums import EFFECT_CLASSES, CallPreview, Decision, Verdict
from runtime.execution.admission import versions
from runtime.execution.admission.admit import Admission
from runtime.execution.effects import outcomes
from runtime.execution.effects.perform import build_request, perform
from runtime.execution.effects.running import RunWork
from runtime.execution.jobs.edit_previews import build_edit_request
from runtime.execution.step import StepBuilder
from runtime.ports.approvals import ReviewSnapshot
from runtime.ports.effects import ModelRequest, Outcome, PreviewRequest, ToolRequest, ToolResult
from runtime.store.steps import Work
from runtime.store.tables import signals

BEGINNING = datetime(2030, 1, 1, 9, tzinfo=UTC)
JITTER = 0.5  # the random position of each wait within its bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One attempt at a call of a tool. `outcome` is None if the worker died before it was journaled."""

    agent: str
    tool: str
    args: dict[str, Any]
    key: str
    attempt: int
    outcome: Outcome | None


class MemoryWorker:
    """A worker in memory.

    `now` is the written state, `clock` the time, `calls` the calls of tools, `snapshots` what reviewers see at each
    gate. `remembered` are the texts of earlier runs, by digest.
    """

    def __init__(
        self, agent: AgentSpec, crash_before: Sequence[str], crash_after: Sequence[str]
    ) -> None:
        self.now = make_initial_state(uuid.uuid4())
        self.clock = BEGINNING
        self.journal: list[str] = []
        self.calls: list[ToolCall] = []
        self._deaths = {"before": list(crash_before), "after": list(crash_after)}
        self._approvals = ApprovalStub()
        self._work = RunWork(lambda: self.clock)
        self._signals = 0
        self._contents: dict[str, Any] = {}
        self.remembered: dict[str, str] = {}
        self._filled = InlinedMessages(self._contents.__getitem__, lambda _: self.remembered)
        self._versions: dict[str, PublishedVersion] = {}
        self._releases = 0
        self.snapshots = self._approvals.snapshots
        self.load(agent)

    def load(self, agent: AgentSpec) -> None:
        """Load this code as the newest version."""
        by_name = {spec.name: spec for spec in walk_family(agent)}
        self._releases += 1
        released = BEGINNING + timedelta(seconds=self._releases)
        self._versions |= {
            spec.fingerprint: PublishedVersion(
                agent=spec.name,
                fingerprint=spec.fingerprint,
                published_at=released,
                definition=spec.definition,
            )
            for spec in by_name.values()
        }
        setup.prepare(secrets=any(spec.keeps_secrets for spec in by_name.values()))
        self._handler = AgentEffects(
            Registry(agents=by_name),
            close_connections=lambda: None,  # the test owns its connection
            versions=lambda keys: {
                key: self._versions[key] for key in keys if key in self._versions
            },
        )
        self._admission = Admission(
            handler=self._handler, approvals=self._approvals, clock=lambda: self.clock
        )

    def decide(self, gate: uuid.UUID, decision: Decision) -> None:
        """Record a person's decision and deliver it."""
        self._approvals.decisions[gate] = decision
        self._signals += 1
        self.advance(signals.GateDecidedSignal(id=self._signals, gate=gate, decision=decision))

    def send(self, name: str, id: str, data: dict[str, Any]) -> int:
        """Deliver an event to every call that waits for it. Return their number."""
        ended = [
            call
            for call in self.waiting()
            if call.event and call.event == name and is_jsonb_match(data, call.match)
        ]
        result = {"event": name, "id": id, "data": data}
        for wait in ended:
            self._signals += 1
            signal = signals.EventSignal(
                id=self._signals, frame=wait.frame, call=wait.call, result=dict(result)
            )
            self.advance(signal)
        return len(ended)

    def waiting(self) -> tuple[WaitStarted, ...]:
        """List the waits for a time or an event, in the order in which they began."""
        began = [
            event
            for text in self.journal
            for event in decode_entry(text).events
            if isinstance(event, WaitStarted)
        ]
        still = {(wait.frame, wait.call) for wait in self.now.list_all_waiting()}
        return tuple(event for event in began if (event.frame, event.call) in still)

    def sleep(self) -> None:
        """Let time pass until the first wait is over."""
        self.clock = max(self.clock, min(wait.until for wait in self.now.waiting()))
        self.expire()
        self.advance()

    def write(self, *, by: str, text: str) -> None:
        """Deliver a person's message."""
        self._signals += 1
        self.advance(signals.MessageSignal(id=self._signals, by=by, text=text))

    def ask(self, *, gate: uuid.UUID, by: str, text: str) -> None:
        """Deliver a person's question about the call at a gate."""
        self._signals += 1
        self.advance(
            signals.InquirySignal(
                id=self._signals, gate=gate, inquiry=uuid.uuid4(), by=by, text=text
            )
        )

    def cancel(self, *, by: str, reason: str) -> None:
        """Cancel the run."""
        self._signals += 1
        self.advance(signals.CancelSignal(id=self._signals, by=by, reason=reason))

    def expire(self) -> None:
        """Deny every call whose gate has expired."""
        for pending in self.now.pending:
            if pending.expires_at is not None and pending.expires_at <= self.clock:
                late = Decision(verdict=Verdict.EXPIRE, by="", reason="no person decided in time")
                self.decide(pending.gate, late)

    def go_on(self) -> None:
        """Execute until the run waits for a person, a time or an event. Waits between attempts pass at once."""
        while not self.now.ended:
            if self.now.phase is Phase.CANCELLING:
                started = [work for work in self._work.ready if isinstance(work, StartTool)]
                self._work.ready.clear()
                self.advance(*(outcomes.not_started(work, outcomes.CANCELLED) for work in started))
            elif self._work.ready:
                self._perform(self._work.ready.pop(0))
            elif waits := self.now.retries():
                self.clock = max(self.clock, min(wait.until for wait in waits))
                self.expire()
                self.advance()
            else:
                break
        self.now = decode_continuation(encode_continuation(self.now))

    def advance(self, *news: Event | signals.Signal) -> None:
        """Receive new outcomes, plan what follows, and journal it as one entry."""
        step_builder = StepBuilder(
            self.now,
            self._handler,
            self._admission,
            lambda work: True,
            lambda: self.clock,
            self._work,
        )
        step_builder.apply_version_changes(self._version_changes())
        for item in news:
            if isinstance(item, signals.Signal):
                step_builder.consume(item)
            else:
                step_builder.add(item)
        step_builder.end_waits()
        step_builder.plan_next()
        if not step_builder.records.events:
            self._work.ready.extend(step_builder.records.work)
            return
        text = encode_entry(Entry(at=self.clock, events=tuple(step_builder.records.events)))
        self.journal.append(text)
        self._contents.update(
            {blob.digest: decode_blob(blob) for blob in step_builder.records.blobs}
        )
        if (summary := step_builder.records.summary) is not None:
            self.remembered[summary.digest] = blobs.read_memory(summary.text)
        self.now = step(self.now, decode_entry(text).events, head="", at=self.clock)
        self._approvals.show(step_builder.records.snapshots)
        self._work.ready.extend(step_builder.records.work)

    def _version_changes(self) -> versions.VersionChanges:
        return versions.compare(self.now, self._handler) if self.now.frames else {}

    def _perform(self, work: Work) -> None:
        request = build_request(self.now, work, self._filled, self._admission.approved)
        if self._dies("before", request):
            return self._take_over()
        dies = self._dies("after", request)
        outcome = self._outcome(request, commits=not dies)
        if isinstance(request, ToolRequest):
            tool_call = ToolCall(
                agent=request.agent,
                tool=request.tool,
                args=request.args,
                key=request.key,
                attempt=request.attempt,
                outcome=None if dies else outcome,
            )
            self.calls.append(tool_call)
        if dies:
            return self._take_over()
        return self.advance(
            outcomes.build_event(self.now, request, outcome, at=self.clock, jitter=JITTER)
        )

    def preview_edit(self, gate: ReviewSnapshot, args: dict[str, Any]) -> CallPreview:
        """Preview the call at the gate with these arguments. Raise CallRejected if it cannot be made."""
        request, _ = build_edit_request(self.now, gate.frame, gate.call, args, self._handler)
        return outcomes.read_preview(self._outcome(request, commits=True))

    def _dies(self, when: str, request: ModelRequest | PreviewRequest | ToolRequest) -> bool:
        """Say whether the worker dies here. Each death happens once."""
        if not isinstance(request, ToolRequest) or request.tool not in self._deaths[when]:
            return False
        self._deaths[when].remove(request.tool)
        return True

    def _take_over(self) -> None:
        """Continue as another worker, which has only the journal."""
        self._work.ready.clear()
        self.now = make_initial_state(self.now.run)
        for text in self.journal:
            entry = decode_entry(text)
            self.now = step(self.now, entry.events, head="", at=entry.at)
        self.advance(*recover(self.now, versions.collect_new_writes(self._version_changes())))

    def _outcome(
        self, request: ModelRequest | PreviewRequest | ToolRequest, *, commits: bool
    ) -> Outcome:
        with override_settings(SIGNOFF_MODEL=SCRIPTED):
            if (
                isinstance(request, ToolRequest)
                and EFFECT_CLASSES[request.effect].commits_with_entry
            ):
                connection.ensure_connection()
                with transaction.atomic():
                    outcome = outcomes.mark_rolled_back(perform(self._handler, request))
                    if not commits or not isinstance(outcome, ToolResult):
                        transaction.set_rollback(True)
                return outcome
            return perform(self._handler, request)


def is_jsonb_match(data: Any, match: Any) -> bool:
    """Say whether `data` contains `match`, as `@>` of jsonb. Order and repeats do not matter."""
    if isinstance(match, dict):
        return isinstance(data, dict) and all(
            key in data and is_jsonb_match(data[key], value) for key, value in match.items()
        )
    if isinstance(match, list):
        return isinstance(data, list) and all(
            any(is_jsonb_match(element, expected) for element in data) for expected in match
        )
    return isinstance(data, bool) is isinstance(match, bool) and bool(data == match)
