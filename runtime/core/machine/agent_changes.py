"""Continues a frame with another version of its agent.

The options of its calls stay, but the stricter effect class applies. If a tool has become a write, its running calls
are repeated only after a person's decision.
"""

import dataclasses

from runtime.core.call_states import SETTLED
from runtime.core.continuation import Call, Continuation
from runtime.core.enums import EffectClass
from runtime.core.errors import IllegalTransition
from runtime.core.events import AgentChanged
from runtime.core.fast_replace import replace
from runtime.core.machine.transitions import FRAMES, next_state


def change_agent(now: Continuation, event: AgentChanged) -> Continuation:
    """Return the continuation after the change.

    Raises IllegalTransition if the frame does not have version `before`.
    """
    frame = now.frame(event.frame)
    next_state(FRAMES, frame.state, event.type, subject=frame.id)
    if event.before != frame.fingerprint:
        raise IllegalTransition("Frame", f"of version {frame.fingerprint}", event.type, frame.id)
    changed = replace(
        frame,
        fingerprint=event.fingerprint,
        prompt=event.prompt,
        instructions=event.instructions,
        pinned=event.pinned,
        calls=tuple(_stricter(call, event.writes) for call in frame.calls),
    )
    now = now.with_frame(changed)
    return replace(now, agents={**now.agents, frame.agent: event.fingerprint})


def _stricter(call: Call, writes: tuple[str, ...]) -> Call:
    if call.terms is None or call.state in SETTLED or call.tool not in writes:
        return call
    terms = dataclasses.replace(call.terms, effect=EffectClass.WRITE)
    return replace(call, terms=terms)
