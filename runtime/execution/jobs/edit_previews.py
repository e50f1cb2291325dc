"""Previews the call at a gate with the arguments that a person wants to give it.

No claim is needed: the run waits, and nothing of it changes. The tool's function runs as just before the call: in a
slot of this process, with the same deadline, context and secrets.
"""

import queue
import threading
from collections import deque
from dataclasses import replace
from typing import Any
from uuid import UUID

from runtime.core.documents.blobs import InlinedMessages
from runtime.core.run.continuation import Continuation
from runtime.core.values.enums import CallPreview
from runtime.core.values.texts import clean_text
from runtime.execution.admission.gates import build_call_terms
from runtime.execution.effects.outcomes import read_preview
from runtime.execution.effects.perform import build_request
from runtime.execution.effects.pool import EffectPool
from runtime.execution.effects.running import EffectFinished, RunningEffect
from runtime.execution.jobs import runner
from runtime.ports.agents import CallRejected
from runtime.ports.effects import EffectHandler, PreviewRequest
from runtime.store import pool
from runtime.store.steps import PreviewCall
from runtime.store.tables import journal, kill_switches
from runtime.store.tables.jobs import PREVIEWS, EditPreviewRow

SLOT_SECONDS = 10.0  # to wait for a slot of this process
CLOSED = "The call does not wait for a person any more."
STOPPED = "An administrator stopped its agent: nothing of it is previewed."
BUSY = "The worker had no slot for the preview. Preview the call again."


def perform(job: UUID, *, handler: EffectHandler, effect_pool: EffectPool) -> None:
    """Perform a queued preview once, as `runner.perform` does."""
    runner.perform(PREVIEWS, job, handler, lambda row: _preview(row, handler, effect_pool))


def build_edit_request(
    now: Continuation, frame: str, call: str, args: dict[str, Any], handler: EffectHandler
) -> tuple[PreviewRequest, PreviewCall]:
    """Return the request for the call at a gate with these arguments. Raises CallRejected if it cannot be made."""
    edited = replace(now.call(frame, call), args=args)
    now = now.with_frame(now.frame(frame).with_call(edited))
    agent = now.frame(frame).agent
    info = handler.describe(agent=agent, tool=edited.tool, args=edited.args)
    work = PreviewCall(frame=frame, call=call, terms=build_call_terms(now, frame, edited, info))
    request = build_request(now, work, InlinedMessages(lambda digest: None), {})
    assert isinstance(request, PreviewRequest)
    return request, work


def _preview(row: EditPreviewRow, handler: EffectHandler, effect_pool: EffectPool) -> str:
    """Preview the call, store the result, and return why there is none, or an empty text."""
    with pool.join_transaction() as connection:
        [now] = deque(journal.read_history(connection, row.run).replay_states(), maxlen=1)
        stopped = kill_switches.list_stopped_agents(connection)
    gate = next((gate for gate in now.pending if gate.gate == row.gate and gate.call), None)
    if gate is None:
        return CLOSED
    if stopped & {kill_switches.EVERY_AGENT, *now.path(gate.frame)}:
        return STOPPED
    try:
        request, work = build_edit_request(now, gate.frame, gate.call, row.arguments, handler)
    except CallRejected as exc:
        preview = CallPreview(refused=clean_text(str(exc)))
    else:
        outcome = _run(effect_pool, work, request)
        if outcome is None:
            return BUSY
        preview = read_preview(outcome.outcome)
    with pool.pooled() as connection:
        PREVIEWS.save(connection, row.id, of=[row.run], **row.build_signed_columns(preview))
    return ""


def _run(
    effect_pool: EffectPool, work: PreviewCall, request: PreviewRequest
) -> EffectFinished | None:
    """Run the request in a slot of this process, and wait for its outcome. None if no slot was free in time."""
    free = threading.Event()
    while not effect_pool.reserve(work, free.set):
        if not free.wait(SLOT_SECONDS):
            effect_pool.cancel_wait(free.set)
            return None
        free.clear()
    effect_pool.wake_next()
    finished = queue.SimpleQueue[EffectFinished]()
    effect_pool.launch(RunningEffect(request=request, submit=finished.put))
    return finished.get()
