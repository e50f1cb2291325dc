"""Adopts the groups, passwords and tokens of a version that did not record who gave them. This happens once.

`prepare` calls this as the owner of the tables. Rows inserted later without a signature give no rights. An old
process that still runs could insert them, or a program with the web's password for Postgres.
"""

from django.contrib.auth.models import User

from approvals import clock
from approvals.accounts.people import changing
from approvals.models import Adoption, Token
from approvals.permissions import assignments, signatures


def adopt() -> bool:
    """Record all present rights as adopted; return False if that was done before."""
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
