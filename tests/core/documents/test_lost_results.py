"""Results that cannot be encoded: the journaled outcome depends on the effect class."""

from dataclasses import replace
from uuid import UUID

import pytest

from runtime.core.documents.lost_results import journaled
from runtime.core.effect_classes import RULES
from runtime.core.enums import EffectClass
from runtime.core.events import CallAdmitted, ToolFailed, ToolReturned, ToolStarted
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import STARTED, TERMS
from tests.core.machine.walks import AT


@pytest.mark.parametrize("effect", list(EffectClass))
def test_a_lost_result_fails_unless_the_call_has_happened(effect: EffectClass) -> None:
    admitted = CallAdmitted(frame="0", call="c1.0", terms=replace(TERMS, effect=effect))
    started = ToolStarted(frame="0", call="c1.0", attempt=1, at=AT)
    now = fold(initial(UUID(int=1)), [*STARTED[:3], admitted, started])
    event = journaled(now, ToolReturned(frame="0", call="c1.0", attempt=1, result="\ud800"))
    happened = RULES[effect].happened_when_returned
    assert isinstance(event, ToolReturned if happened else ToolFailed)


def test_a_lost_result_of_a_call_without_terms_fails() -> None:
    now = fold(initial(UUID(int=1)), STARTED[:3])
    event = journaled(now, ToolReturned(frame="0", call="c1.0", attempt=1, result="\ud800"))
    assert isinstance(event, ToolFailed)
