"""Applies edits: a person approved a call with other arguments than its model had proposed.

The call keeps both. The preview of the edited call, which the person saw, takes the place of the one at the gate.
Without it the call is asked again, because no person saw the consequences of these arguments. A later call with the
digest of the replaced action is asked again, even if policy would not ask.
"""

import dataclasses

from runtime.core.continuation import Call, Continuation, Edited
from runtime.core.enums import Verdict
from runtime.core.errors import IllegalTransition
from runtime.core.events import GateDecided
from runtime.core.fast_replace import replace


def edit_call(call: Call, event: GateDecided) -> Call:
    """Return the call with the arguments of the edit. Raises IllegalTransition if the event has none."""
    if event.edit is None or call.terms is None:
        raise IllegalTransition("Call", "without an edit", f"{event.type}:{event.verdict}", call.id)
    edited = Edited(by=event.by, proposed=call.proposed)
    first = unedited(call)
    if first.edited is not None:  # a person of a fork gave them
        edited = dataclasses.replace(edited, given=first.args, given_by=first.edited.by)
    shown, digest = call.shown, event.edit.digest
    if event.edit.preview is not None:
        shown = dataclasses.replace(event.edit.preview, digest=digest)
    terms = dataclasses.replace(call.terms, digest=digest)
    return replace(call, args=event.edit.args, terms=terms, edited=edited, shown=shown)


def given_call(call: Call, by: str) -> Call:
    """Return a call of a reply that this person gave in a fork. Another person is always asked about it."""
    return replace(call, edited=Edited(by=by, proposed=call.args, in_fork=True))


def remember_edit(now: Continuation, call: Call, event: GateDecided) -> Continuation:
    """Return the state that knows the replaced action of `call`, as it was before the decision."""
    if event.verdict is not Verdict.EDIT or call.terms is None:
        return now
    return replace(now, edits={**now.edits, call.terms.digest: event.by})


def unedited(call: Call) -> Call:
    """Return the call as its model proposed it, or as a person gave it in a fork."""
    if call.edited is None or call.edited.in_fork:
        return call
    if not call.edited.of_fork:
        return replace(call, args=call.proposed, edited=None)
    given = Edited(by=call.edited.given_by, proposed=call.proposed, in_fork=True)
    return replace(call, args=call.edited.given, edited=given)
