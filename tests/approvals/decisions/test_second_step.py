"""What guards a slip: undo for some seconds at low and medium risk, at high risk a second step."""

from datetime import timedelta

import pytest
from django.test import override_settings

from config.env import environment
from runtime.core.enums import Risk
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("risk", "window"), [(Risk.LOW, 10), (Risk.MEDIUM, 10), (Risk.HIGH, 0)])
def test_low_and_medium_risk_can_be_undone(bea: Actor, risk: Risk, window: int) -> None:
    with override_settings(ABEYANCE_UNDO_SECONDS=environment.read({}).undo_seconds):
        found = seeds.decide(seeds.pending(risk=risk), bea)
    assert found.decided_at
    assert found.effective_at == (found.decided_at + timedelta(seconds=window) if window else None)
