"""Lists what each effect class allows. A new effect class is one more row."""

from dataclasses import dataclass

from runtime.core.enums import EffectClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for calls of one effect class.

    `repeats_unasked`: an attempt without a known outcome is repeated; otherwise an in-doubt gate opens.
    `needs_same_key`: an attempt may only be repeated under its idempotency key. A fork has other keys.
    `commits_with_entry`: the writes commit with the journal entry, or are rolled back.
    `happened_when_returned`: a call that returned has taken effect, even if its result cannot be recorded.
    `has_side_effects`: the call can change something outside the run.
    """

    repeats_unasked: bool
    needs_same_key: bool
    commits_with_entry: bool
    happened_when_returned: bool
    has_side_effects: bool


RULES: dict[EffectClass, Rules] = {
    EffectClass.READ: Rules(
        repeats_unasked=True,
        needs_same_key=False,
        commits_with_entry=False,
        happened_when_returned=False,
        has_side_effects=False,
    ),
    EffectClass.IDEMPOTENT: Rules(
        repeats_unasked=True,
        needs_same_key=True,
        commits_with_entry=False,
        happened_when_returned=True,
        has_side_effects=True,
    ),
    EffectClass.TRANSACTIONAL: Rules(
        repeats_unasked=True,
        needs_same_key=False,
        commits_with_entry=True,
        happened_when_returned=False,
        has_side_effects=True,
    ),
    EffectClass.WRITE: Rules(
        repeats_unasked=False,
        needs_same_key=False,
        commits_with_entry=False,
        happened_when_returned=True,
        has_side_effects=True,
    ),
}
