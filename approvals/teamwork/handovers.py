"""Hands a request to another person who may decide it, with a note. The claim moves with it."""

from typing import Final
from uuid import UUID

from django.db import transaction

from approvals import clock
from approvals.models import Approval, Handover
from approvals.queries import deciders
from approvals.rights import approvals, principals
from approvals.signed import audit, rows
from approvals.teamwork import claims
from runtime.control.access import validate_text
from runtime.core.values.json_values import sha256_of
from runtime.core.values.limits import MAX_PERSON
from runtime.errors import InvalidInput
from runtime.ports.access import Actor

MAX_NOTE: Final = 500  # characters


def hand_over(*, approval_id: UUID, to: object, note: object, actor: Actor) -> Handover:
    """Hand a request over. Its receiver gets no right: they must be able to decide it already.

    Raises, in this order: NotFound; Forbidden; Cancelled, Expired or AlreadyDecided; InvalidInput naming `to` or
    `note`; AlreadyClaimed if a third person holds the claim; ImproperlyConfigured without the private key.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        approval = claims.decidable(approval_id, actor)
        person = _receiver(approval, to, actor)
        said = validate_text("note", "" if note is None else note, MAX_NOTE)
        claims.write(approval, person, giver=actor.person)
        Handover.objects.filter(approval=approval).delete()
        made = Handover(
            approval=approval, person=person, by=actor.person, note=said, at=clock.now()
        )
        rows.add(made)
        audit.append(
            run=approval.run_id,
            actor=actor,
            act="handed over",
            subject=f"request {approval.id}",
            detail={"digest": approval.approval_digest, "to": person, "note": sha256_of(said)},
            at=made.at,
        )
    return made


def receivers(approval_id: UUID, actor: Actor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the people to whom the actor could hand the request over, and the people who are away."""
    approval = Approval.objects.get(pk=approval_id)
    found = deciders.outlook(approval, deciders.relevant(approval, deciders.deciders()))
    return tuple(name for name in found.able if name != actor.person), found.away


def _receiver(approval: Approval, to: object, actor: Actor) -> str:
    """Return the person. Raises InvalidInput naming `to` unless they may decide the request and have not voted."""
    person = validate_text("to", to, MAX_PERSON, required="must name a person")
    if person == actor.person:
        raise InvalidInput("to", "must be another person")
    principal = principals.principal_of(Actor(person=person))
    if principal is None:
        raise InvalidInput("to", f"names {person}, who has no active account")
    denial = approvals.denial(principal, approval)
    if denial is not None:
        raise InvalidInput(
            "to", f"names {person}, who may not decide this: {denial.detail.rstrip('.')}"
        )
    if person in approval.voted:
        raise InvalidInput("to", f"names {person}, who has approved this already")
    return person
