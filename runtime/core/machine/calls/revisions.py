"""Revisions: a person requested changes to a call, and the agent proposes it again.

The next call of the same tool in the same frame for which a gate opens, in a later turn, is the revision. If people
requested changes to several calls of the tool, they are revised in their order.
"""

from runtime.core.continuation import Call, Denial, Frame, Revision, ToRevise
from runtime.core.enums import Verdict
from runtime.core.events import GateDecided
from runtime.core.fast_replace import replace
from runtime.core.ids import turn_key, turn_of


def revision_of(frame: Frame, call: Call) -> Revision | None:
    """Return what the call revises, or would if its gate opened now; None if it is a first proposal."""
    if call.revises is not None:
        return call.revises
    earlier = _earlier(frame, call)
    return None if earlier is None else Revision(gate=earlier.gate, number=earlier.number + 1)


def revise(frame: Frame, call: Call) -> tuple[Frame, Call]:
    """Return frame and call after a gate has opened for the call, which then revises the earlier one."""
    earlier = _earlier(frame, call) if call.revises is None else None
    if earlier is None:
        return frame, call
    left = tuple(one for one in frame.to_revise if one != earlier)
    return replace(frame, to_revise=left), replace(call, revises=revision_of(frame, call))


def remember_changes(frame: Frame, call: Call, event: GateDecided) -> Frame:
    """Return the frame that knows that a person requested changes to the call, if the event says so."""
    if event.verdict is not Verdict.REQUEST_CHANGES:
        return frame
    number = 1 if call.revises is None else call.revises.number
    asked = ToRevise(tool=call.tool, call=call.id, gate=event.gate, number=number)
    return replace(frame, to_revise=(*frame.to_revise, asked))


def denial_of(tool: str, call: str, event: GateDecided, *, apart: bool) -> Denial:
    """Return the denial of a call of `tool`; `apart` is one of an item of a list.

    Such a denial and a request for changes do not count towards the end of the run.
    """
    changes = event.verdict is Verdict.REQUEST_CHANGES
    return Denial(
        tool=tool,
        turn=turn_key(event.frame, call),
        reason=event.reason,
        counts=not (changes or apart),
        changes=changes,
    )


def _earlier(frame: Frame, call: Call) -> ToRevise | None:
    turn = turn_of(call.id)
    found = (one for one in frame.to_revise if one.tool == call.tool and turn_of(one.call) < turn)
    return next(found, None)
