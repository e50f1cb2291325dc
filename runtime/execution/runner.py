"""The loop of one claimed run. Its runner is the only one that appends to the run's journal.

Each loop builds a step, commits it, starts the effects it recorded, then waits for an outcome, a signal or the loss of
the lease. When no effect is running and none is planned, the step releases the run: it has ended, or waits at gates.

The reply of a script costs nothing and is there at once: it joins the step that asks for it. Only outcomes that can be
had again wait for it: that of a `write`, or a reply that was paid for, is committed first.
"""

import queue
import random
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.conf import settings

from runtime.core.documents.blobs import InlinedMessages
from runtime.core.documents.codec import replace_unencodable
from runtime.core.run.continuation import Continuation, FrameState, Phase
from runtime.core.run.events import Event, MessageReceived, QuestionFailed
from runtime.core.run.gates import open_inquiry
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool, plan
from runtime.core.run.retries import recover
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import NotJson
from runtime.errors import LeaseLost, ObjectStoreDown, WorkerOutdated
from runtime.execution.admission.admit import Admission
from runtime.execution.admission.versions import VersionChanges, collect_new_writes
from runtime.execution.commit import LoadedRun, StepWriter
from runtime.execution.effects import outcomes
from runtime.execution.effects.perform import build_request, perform
from runtime.execution.effects.running import (
    EffectFinished,
    EffectRequest,
    KeptSlots,
    RunningEffect,
    RunWork,
    is_too_late,
)
from runtime.execution.effects.transactional import TransactionalResult
from runtime.execution.heartbeat import ClaimedRun
from runtime.execution.step import StepBuilder
from runtime.execution.worker import RunPauses, WorkerContext, YieldPolicy, repeat_until_reachable
from runtime.ports.effects import ModelRequest, Outcome, PreviewRequest, ToolFailure, ToolRequest
from runtime.store.steps import CommitResult, Work
from runtime.store.tables import used_approvals

KEEP_CLAIM_MAX = timedelta(seconds=2)  # the longest wait for which a worker keeps a run
# Seconds of a wait: to release a slot and acquire it again costs more than a quick tool.
KEEP_SLOT = 0.001
SLOW_REPLY = 0.05  # seconds of a script, after which no further outcome waits for one
CANCEL_GRACE = timedelta(seconds=10)  # for running calls when a run is cancelled

RunnerMessage = EffectFinished | None  # None to check for signals, a lost lease or a free slot
RunnerQueue = queue.SimpleQueue[RunnerMessage]


class Runner:
    """Advances one run until it is released."""

    def __init__(
        self,
        context: WorkerContext,
        claimed: ClaimedRun,
        messages: RunnerQueue,
        loaded: LoadedRun,
        version_changes: VersionChanges | None,
    ) -> None:
        self._context = context
        self._version_changes = version_changes
        self._unapplied = version_changes  # added to each step until one with them is committed
        self._claimed = claimed
        self._messages = messages
        self._yielding = YieldPolicy(claimed, context.heartbeat.draining)
        self.pauses = RunPauses(claimed=claimed, slots=context.slots)
        self._writer = StepWriter(self.pauses, context.approvals, loaded, self._yielding)
        self._filled = InlinedMessages(self._writer.read_content, self._writer.recall)
        self._work = RunWork(self._writer.read_clock)
        self._results: list[TransactionalResult] = []  # to be committed in their own transactions
        self._uncommitted: list[EffectFinished] = []  # in the step
        # Not for a suspected run: its script may be what kills its workers.
        self._scripts_are_quick = not (claimed.claim.lost_leases or claimed.claim.isolated)
        self._can_repeat = True  # the outcomes in the step
        self._scripted: dict[str, bool] = {}  # by agent
        self._kept_slots = KeptSlots()
        self._ended_replies = frozenset[str]()  # frames whose kept part the next step deletes
        self._ended = False
        self._expired: set[tuple[UUID, datetime]] = set()
        self._grace_ends: datetime | None = None
        self._admission = Admission(
            handler=context.handler, approvals=context.approvals, clock=self._writer.read_clock
        )
        self._step = self._new_step()

    def work(self) -> Continuation:
        """Advance the run until it is released, and return its state then."""
        for event in recover(self._writer.now, collect_new_writes(self._version_changes or {})):
            self._step.add(event)
        for frame in self._writer.now.frames.values():
            if frame.state is FrameState.ASKING:
                rows = self._writer.read_kept_parts()
                self._ended_replies = frozenset(rows)
                for row in rows.values():
                    retry = outcomes.build_lost_reply_event(
                        self._writer.now, row, self._writer.read_clock()
                    )
                    if retry is not None:
                        self._step.add(retry)
                break
        try:
            while not self._advance():
                self._context.effect_pool.wake_next()
                self._launch()
                self._wait()
            return self._writer.now
        finally:
            self._work.abort_model_calls()
            for work in (*self._step.records.work, *self._work.ready):
                self._context.effect_pool.release(work)
            self._kept_slots.release()
            self._context.effect_pool.cancel_wait(self._claimed.wake)
            # First open transactions, with their locks.
            self._ended = True
            while not self._messages.empty():
                message = self._messages.get_nowait()
                if isinstance(message, TransactionalResult):
                    self._results.append(message)
                elif message is not None:
                    self._uncommitted.append(message)
            for message in (*self._results, *self._uncommitted):
                message.discard()

    def _advance(self) -> bool:
        """Build a step and commit it. True once the run is released."""
        writer = self._writer
        if self._results:
            self._commit_results()
        if self._step.now.phase is Phase.CANCELLING:
            self._settle_cancelling()
        if self._work.ready or self._work.running:
            self._withdraw_ready()
        if self._step.now.pending:
            self._expire()
        received = tuple(self._step.records.received)
        while True:
            if self._unapplied is not None:
                self._step.apply_version_changes(self._unapplied)
            for signal in writer.read_signals():
                self._step.consume(signal)
            for late in writer.read_late_outcomes(self._step.now):
                self._step.receive_late(late, writer.settling)
            if self._version_changes is None and self._step.now.phase is not Phase.CANCELLING:
                raise WorkerOutdated("no signal ends it any longer")
            self._step.end_waits()
            self._step.plan_next()
            answered = self._answer_at_once() if self._can_repeat else False
            release = self._at_rest()
            records, result = self._step.records, CommitResult.WRITTEN
            try:
                if records.events:
                    records.ended_replies = self._ended_replies
                    result = writer.commit(records, self._step.now, release=release)
                elif release:
                    result = writer.release()
            except NotJson:
                before = received
                received = tuple([replace_unencodable(writer.now, event) for event in before])
                if received == before and not answered:
                    raise
                self._can_repeat = False  # so the reply is a change of its own
                self._rebuild_step(received)
                continue
            match result:
                case CommitResult.WRITTEN:
                    self._unapplied = None
                    received_messages = records.by_type.get(MessageReceived)
                    if received_messages and any(message.cuts for message in received_messages):
                        self._work.cut_reply()
                    self._uncommitted.clear()
                    if release:
                        return True
                    self._can_repeat = True
                    self._kept_slots.release()
                    if records.events:
                        self._ended_replies = frozenset()
                    self._work.ready.extend(records.work)
                    self._step = self._new_step()
                    return False
                case CommitResult.NEW_SIGNALS:
                    writer.reread_signals()
                    self._rebuild_step(received)
                case CommitResult.LOST:
                    raise LeaseLost

    def _answer_at_once(self) -> bool:
        """Add the replies of scripts, one for each frame, and what follows from them. Return whether there are any."""
        answered = set[str]()
        while (work := self._next_instant(answered)) is not None:
            try:
                request = build_request(
                    self._step.now, work, self._filled, self._admission.approved
                )
            except ObjectStoreDown:
                break  # it is read again once the step is written
            answered.add(work.frame)
            started = time.monotonic()
            outcome = perform(self._context.handler, request)
            self._scripts_are_quick &= time.monotonic() - started < SLOW_REPLY
            self._step.records.work.remove(work)
            self._context.effect_pool.release(work)
            self._add_outcome(RunningEffect(request=request, submit=self._submit), outcome)
            self._step.plan_next()
        return bool(answered)

    def _next_instant(self, answered: set[str]) -> CallModel | None:
        """Return the next call of a script whose reply may join the step, None if there is none."""
        records = self._step.records
        if not self._scripts_are_quick or records.blobs:
            return None
        for work in records.work:
            if (
                isinstance(work, CallModel)
                and not work.summary
                and work.frame not in answered
                and self._is_scripted(self._step.now.frames[work.frame].agent)
            ):
                return work
        return None

    def _is_scripted(self, agent: str) -> bool:
        if agent not in self._scripted:
            self._scripted[agent] = self._context.handler.is_scripted(agent)
        return self._scripted[agent]

    def _rebuild_step(self, received: Sequence[Event]) -> None:
        """Build the step again from these events alone: a decision in it may have been undone since it was read."""
        for work in self._step.records.work:
            if not (isinstance(work, StartTool) and self._kept_slots.put_back(work)):
                self._context.effect_pool.release(work)
        self._step = self._new_step()
        for event in received:
            self._step.add(event)

    def _at_rest(self) -> bool:
        """Return whether no effect is running or planned, and no wait is short enough to keep the claim."""
        now = self._step.now
        if now.ended or self._yielding.gives_up:
            return True
        if self._work.running or self._work.ready or self._step.records.work:
            return False
        if self._yielding.ended(now):
            return True
        if plan(now):
            return False
        soonest = min(self._wake_times(), default=None)
        return soonest is None or soonest - self._writer.read_clock() > KEEP_CLAIM_MAX

    def _new_step(self) -> StepBuilder:
        return StepBuilder(
            self._writer.now,
            self._context.handler,
            self._admission,
            self._reserve,
            self._writer.read_clock,
            self._work,
            self.pauses,
        )

    def _reserve(self, work: Work) -> bool:
        """Reserve a slot for new work, unless no new work may start."""
        if self._yielding.ended(self._writer.now):
            return False
        if isinstance(work, StartTool) and self._kept_slots.use(work):
            return True
        return self._context.effect_pool.reserve(work, self._claimed.wake)

    # Messages

    def _wait(self) -> None:
        """Wait for a message or until something is due, then receive every message that is there.

        The slot is released during the wait.
        """
        slots = self._context.slots
        try:
            try:
                message = self._messages.get(timeout=KEEP_SLOT if slots.has_free_slot() else 0)
            except queue.Empty:
                slots.release()
                try:
                    message = self._messages.get(timeout=self._timeout())
                finally:
                    slots.acquire()
            while True:
                if self._claimed.lost.is_set():
                    self._messages.put(message)  # to be discarded with the others
                    raise LeaseLost
                if isinstance(message, TransactionalResult):
                    self._work.running.discard(message.effect)
                    self._results.append(message)
                elif message is not None:
                    self._work.running.discard(message.effect)
                    if message.slot is not None:
                        self._kept_slots.take_over(message.effect.request, message.slot)
                    self._uncommitted.append(message)
                    self._add_outcome(message.effect, message.outcome)
                message = self._messages.get_nowait()
        except queue.Empty:
            return

    def _add_outcome(self, effect: RunningEffect, outcome: Outcome) -> None:
        request = effect.request
        if isinstance(request, ModelRequest):
            is_reply = request.inquiry is None and not request.summary
            repeats = is_reply and self._is_scripted(request.agent)
            with effect.keeping:  # until a part that is being written is there
                if effect.is_kept:
                    self._ended_replies |= {request.frame}
        else:
            repeats = EFFECT_CLASSES[request.effect].repeats_unasked
        self._can_repeat = self._can_repeat and repeats  # if lost, it costs nothing
        if not effect.keeps_slot:  # else an isolated run would yield before each start of its call
            self._yielding.made_progress = True
        if is_too_late(self._step.now, request):
            self._charge_dropped(request, outcome)
            return
        event = outcomes.build_event(
            self._step.now,
            request,
            outcome,
            at=self._writer.read_clock(),
            jitter=random.random(),  # noqa: S311 - spreads retries, keeps no secret
            is_cut=effect.is_cut,
        )
        self._step.add(event)
        if isinstance(event, QuestionFailed):
            self._charge_dropped(request, outcome)

    def _charge_dropped(self, request: EffectRequest, outcome: Outcome) -> None:
        """Charge an answer that no inquiry gets, unless the run has ended."""
        event = (
            outcomes.build_answer_dropped(request, outcome)
            if isinstance(request, ModelRequest)
            else None
        )
        if event is not None and not self._step.now.ended:
            self._step.add(event)

    def _submit(self, message: EffectFinished) -> None:
        """Queue a message, in an effect's thread. After the runner has ended, discard it."""
        self._messages.put(message)
        if self._ended:
            message.discard()

    def _timeout(self) -> float | None:
        """Return the seconds until a wait ends, a gate expires or a cancelled run's grace ends; None if none will."""
        moments = self._wake_times()
        for pending in self._step.now.pending:
            if pending.expires_at and (pending.gate, pending.expires_at) not in self._expired:
                moments.append(pending.expires_at)
        if self._grace_ends is not None:
            moments.append(self._grace_ends)
        soonest = min(moments, default=None)
        if soonest is None:
            return None
        return max(0.0, (soonest - self._writer.read_clock()).total_seconds())

    def _wake_times(self) -> list[datetime]:
        """List the times at which waits of the run end and its next signal takes effect."""
        moments = [wait.until for wait in self._step.now.waits()]
        if self._writer.next_signal is not None:
            moments.append(self._writer.next_signal)
        if self._work.reads_at is not None:
            moments.append(self._work.reads_at)
        return moments

    # Time

    def _expire(self) -> None:
        """Expire the gates that are due. Each expiry then arrives as a signal."""
        for pending in self._step.now.pending:
            due = pending.expires_at
            is_due = due is not None and due <= self._writer.read_clock()
            if due is not None and is_due and (pending.gate, due) not in self._expired:
                self._expired.add((pending.gate, due))
                self._expire_gate(pending.gate)
                self._writer.reread_signals()

    @repeat_until_reachable
    def _expire_gate(self, gate: UUID) -> None:
        self._context.approvals.expire(gate)

    def _settle_cancelling(self) -> None:
        """Give running calls of a cancelled run 10 s of grace, then record their outcome as unknown."""
        if self._grace_ends is None:
            self._grace_ends = self._writer.read_clock() + CANCEL_GRACE
            self._work.abort_model_calls()
        if self._writer.read_clock() >= self._grace_ends:
            for event in recover(self._step.now):
                self._step.add(event)
            self._work.running.clear()

    def _withdraw_ready(self) -> None:
        """Free the slots of recorded work that must not start any more, and record that its calls do not start.

        End the model calls of inquiries whose gate is no longer open.
        """
        for effect in self._work.running:
            if is_too_late(self._writer.now, effect.request):
                effect.abort()
        for work in tuple(self._work.ready):
            reason = self._must_not_start(work)
            if reason is None:
                continue
            self._work.ready.remove(work)
            self._context.effect_pool.release(work)
            if isinstance(work, StartTool):
                self._step.add(outcomes.not_started(work, reason))

    def _must_not_start(self, work: Work) -> str | None:
        """Return why recorded work must not start any more, None if it may.

        A call whose intent is older than a lease needs a new one, because people could already be offered "run again".
        """
        now = self._writer.now
        if now.phase is Phase.CANCELLING:
            return outcomes.CANCELLED
        if self._yielding.ended(now):
            return outcomes.RELEASED
        if isinstance(work, AnswerInquiry) and open_inquiry(now, work.inquiry) is None:
            return outcomes.DECIDED
        if isinstance(work, StartTool):
            written = now.call(work.frame, work.call).started_at
            assert written is not None  # by its intent
            if self._writer.read_clock() - written > timedelta(
                seconds=settings.SIGNOFF_LEASE_SECONDS
            ):
                return outcomes.STALE
        return None

    # Effects

    def _launch(self) -> None:
        """Start the effects whose intents are committed, while the lease is certainly valid."""
        if self._writer.now.phase is Phase.CANCELLING and self._grace_ends is None:
            self._claimed.wake()  # to begin the grace
        unreadable: list[ObjectStoreDown] = []
        for work in tuple(self._work.ready):
            if self._must_not_start(work) is not None:
                self._claimed.wake()  # to withdraw it
                break
            if not self._claimed.has_budget():
                break
            try:
                request = build_request(
                    self._writer.now, work, self._filled, self._admission.approved
                )
            except ObjectStoreDown as exc:
                unreadable.append(exc)
                continue
            self._work.ready.remove(work)
            effect = RunningEffect(
                request=request, submit=self._submit, worker=self._claimed.claim.worker
            )
            if isinstance(request, ToolRequest):
                call = self._writer.now.call(request.frame, request.call)
                effect.started_at = call.started_at
                if call.gate is not None:  # after the intent is committed, before the call starts
                    used_approvals.record_fact(
                        used_approvals.format_spent_line(request.run, (call.gate, request.attempt))
                    )
            elif isinstance(request, PreviewRequest):
                approved_preview = self._writer.now.call(request.frame, request.call).shown
                effect.keeps_slot = approved_preview is not None
            elif request.inquiry is None and not request.summary:
                frame = self._writer.now.frame(request.frame)
                keep_part = self._context.effect_pool.replies.keep
                effect.keep = partial(
                    keep_part, effect, self._claimed.claim, frame, self._writer.read_clock
                )
            self._work.running.add(effect)
            self._context.effect_pool.launch(effect)
        self._work.await_contents(unreadable)

    def _commit_results(self) -> None:
        """Commit each transactional result on its own, in its tool's transaction, before anything else."""
        while self._results:
            result = self._results[0]
            later = self._step.records.received
            self._step = self._new_step()
            self._add_outcome(result.effect, result.outcome)
            try:
                # If the tool's writes were rolled back, its error.
                problem = self._writer.commit_result(self._step.records, self._step.now, result)
            except NotJson as exc:
                result.discard()
                problem = exc
            self._results.pop(0)
            self._step = self._new_step()
            if problem is not None:
                fault = ToolFailure(error=f"it was rolled back: {problem}", retryable=True)
                self._add_outcome(result.effect, fault)
            for event in later:
                self._step.add(event)
