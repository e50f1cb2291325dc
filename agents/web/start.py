"""What people do with agents: start one from a form, once however often the form is sent."""

from typing import Any
from uuid import UUID

from django.db import transaction

from agents.models import SentForm
from runtime.control.start import start
from runtime.ports.access import Actor


def start_once(
    *,
    form: UUID,
    agent: str,
    input: Any,
    business_key: str | None,
    actor: Actor,
    budget: object = None,
) -> UUID:
    """The run that this form started, now or when it was sent before.

    The second of two that are sent at once waits at the form's number until the first is through, and
    then finds its run. Raises what runtime.control.start.start raises, and then the form may be sent again.
    """
    with transaction.atomic():
        row, _ = SentForm.objects.get_or_create(number=form, defaults={"person": actor.person})
        if row.run is not None and row.person == actor.person:
            return row.run
        run = start(
            agent=agent, input=input, business_key=business_key, actor=actor, budget=budget
        ).run
        SentForm.objects.filter(number=form).update(run=run)
        return run
