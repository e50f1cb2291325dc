"""Takes over the people and tokens of a version that did not record who gave what: once, and never again.

`prepare` calls this as the owner of the tables. What is inserted afterwards without a signature, by an old
process that is still up or by a program with the web's password for Postgres, counts for nothing.
"""

from django.contrib.auth.models import User

from approvals import assignments, attestation, clock
from approvals.models import Adoption, Token
from approvals.people import changing


def adopt() -> bool:
    """Record what people have now as given before assignments were recorded; False if that was done before."""
    with changing():
        if Adoption.objects.exists():
            return False
        for person in User.objects.prefetch_related("groups"):
            assignments.adopt(person, assignments.CREDENTIAL)
            for group in person.groups.all():
                assignments.adopt(person, group.name)
        for token in Token.objects.filter(signature=None):
            attestation.sign(token)
            token.save(update_fields=["signature", "key_id"])
        Adoption.objects.create(at=clock.now())
    return True
