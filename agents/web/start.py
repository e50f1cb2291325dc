"""Starts a run from a form, once, however often the form is submitted."""

from typing import Any
from uuid import UUID

from django.db import transaction

from agents.models import FormSubmission
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
    thread: str | None = None,
) -> UUID:
    """Start a run from this form, or return the run that it started before.

    Of two concurrent submissions, the second waits for the first on the form's row, and then returns its run. Raise as
    runtime.control.start.start; the form may then be submitted again.
    """
    with transaction.atomic():
        row, _ = FormSubmission.objects.get_or_create(
            number=form, defaults={"person": actor.person}
        )
        if row.run is not None and row.person == actor.person:
            return row.run
        run = start(
            agent=agent,
            input=input,
            business_key=business_key,
            actor=actor,
            budget=budget,
            thread=thread,
        ).run
        FormSubmission.objects.filter(number=form).update(run=run)
        return run
