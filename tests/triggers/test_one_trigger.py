"""Schedules and triggers are one thing with two kinds: the kind is signed, and neither is found as the other."""

from datetime import timedelta

import pytest

from runtime.errors import NoSuchSchedule, NoSuchTrigger, Tampered
from runtime.models import Occurrence, Run, Trigger
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, listing
from tests.support.engine import ADA
from tests.triggers.conftest import NOON, SAID, Clock


def test_neither_is_found_as_the_other(clock: Clock) -> None:
    made = clock.make()
    with pytest.raises(NoSuchTrigger):
        changes.pause(TriggerKind.EVENT, id=made, actor=ADA)
    assert listing.read_list(TriggerKind.EVENT, ADA) == ([], False)
    Trigger.objects.update(kind=TriggerKind.EVENT)  # as a program could that writes to it
    with pytest.raises(NoSuchSchedule):
        changes.change(TriggerKind.SCHEDULE, id=made, sent=SAID, actor=ADA)
    with pytest.raises(Tampered, match="is not the signed one"):
        changes.pause(TriggerKind.EVENT, id=made, actor=ADA)


def test_what_started_a_run_is_not_what_woke_it(clock: Clock) -> None:
    made = clock.make()
    clock.sweep(NOON)
    run = Run.objects.get().id
    other = clock.make(name="Other")
    at = NOON - timedelta(days=1)
    Occurrence.objects.create(trigger=other, number=1, at=at, kind="event", state="woken", run=run)
    starter = listing.find_starter_of_run(run, ADA)
    assert starter is not None
    assert (starter.id, starter.noun, starter.name) == (made, "schedule", "Hourly")
    Occurrence.objects.filter(trigger=made).update(run=None)  # as if a person had started it
    assert listing.find_starter_of_run(run, ADA) is None
