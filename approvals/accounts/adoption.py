"""Adopts the groups, passwords, tokens and hand-overs of versions that did not sign them. This happens once.

`prepare` calls this as the owner of the tables. Rows inserted later without a signature give no rights, and a hand-over
is shown without giver and note. An old process that still runs could insert them, or a program with the web's password
for Postgres.
"""

from django.contrib.auth.models import User

from approvals import clock
from approvals.accounts.people import changing
from approvals.models import Adoption, Handover, Token
from approvals.permissions import assignments, signatures
from approvals.requests import handovers


def adopt() -> bool:
    """Record all present rights and hand-overs as adopted; return False if that was done before."""
    rights = _adopt_rights()
    return _adopt_handovers() or rights


def _adopt_rights() -> bool:
    with changing():
        if Adoption.objects.exists():
            return False
        for person in User.objects.prefetch_related("groups"):
            assignments.adopt(person, assignments.CREDENTIAL)
            for group in person.groups.all():
                assignments.adopt(person, group.name)
        for token in Token.objects.filter(signature=None):
            signatures.sign(token)
            token.save(update_fields=["signature", "key_id"])
        Adoption.objects.create(at=clock.now())
    return True


def _adopt_handovers() -> bool:
    """Sign the hand-overs that an earlier release stored unsigned, so that giver and note are shown again."""
    with changing():
        if not Adoption.objects.filter(handovers_at=None).update(handovers_at=clock.now()):
            return False
        for row in Handover.objects.filter(signature="").select_for_update():
            handovers.sign(row)
            row.save(update_fields=["signature", "key_id"])
    return True
