"""Says whether the preview of a call is current, and whether an approval still counts for it."""

from datetime import datetime, timedelta

from runtime.core.continuation import Call
from runtime.core.effect_classes import RULES
from runtime.core.enums import CallPreview

CURRENT = timedelta(seconds=10)  # the age up to which a preview confirms an approval
# The age up to which a gate shows a preview. It is longer, because the gates of a turn open together, after the last of
# its previews. The preview is made again before the effect.
SHOWN = timedelta(minutes=10)


def is_current(
    preview: CallPreview | None, digest: str, at: datetime, within: timedelta = CURRENT
) -> bool:
    """Return whether a preview was made of this action, not longer ago than `within`."""
    if preview is None or preview.at is None or preview.digest != digest:
        return False
    return at - preview.at <= within


def is_confirmed(call: Call, at: datetime) -> bool:
    """Return whether the approved call would do what the reviewer saw.

    A call that was approved without a preview needs none. Neither does a repeated `idempotent` one, whose earlier
    attempt may have had its effect: then nothing is left to change.
    """
    if call.shown is None or not call.shown.material or _may_have_happened(call):
        return True
    newest = call.preview
    if not is_current(newest, call.shown.digest, at) or newest is None:
        return False
    return newest.material == call.shown.material


def _may_have_happened(call: Call) -> bool:
    return call.attempt > 0 and call.terms is not None and RULES[call.terms.effect].needs_same_key
