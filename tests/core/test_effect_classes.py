"""Every effect class has rules, and the rules do not contradict each other."""

import pytest

from runtime.core.effect_classes import RULES
from runtime.core.enums import EffectClass


@pytest.mark.parametrize("effect", EffectClass)
def test_every_effect_class_has_consistent_rules(effect: EffectClass) -> None:
    rules = RULES[effect]
    assert not (rules.commits_with_entry and rules.happened_when_returned)
    assert rules.has_side_effects or not rules.happened_when_returned
    assert rules.repeats_unasked or not rules.needs_same_key


def test_only_a_write_opens_an_in_doubt_gate() -> None:
    asked = {effect for effect, rules in RULES.items() if not rules.repeats_unasked}
    assert asked == {EffectClass.WRITE}
