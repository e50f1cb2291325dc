"""Defines what signed tables have in common, and the tables of audited acts and of the heads of their chains."""

from typing import ClassVar

from django.db import models
from django.utils import timezone

from runtime.keyring import purposes
from runtime.models import Run


class SignedRow(models.Model):
    """A row with a signature over its KIND, which no other table has, and its SIGNED_FIELDS.

    A process needs the private key of PURPOSE to make one. So a program that only writes to Postgres can neither make
    nor change one.
    """

    PURPOSE: ClassVar[str] = purposes.RIGHTS
    KIND: ClassVar[str]
    SIGNED_FIELDS: ClassVar[tuple[str, ...]]
    LATER_FIELDS: ClassVar[tuple[str, ...]] = ()  # signed if they are set: earlier rows verify

    signature = models.TextField()  # hex
    key_id = models.TextField()

    class Meta:
        abstract = True


class SecretRow(SignedRow):
    """A row with the hash of a secret, whose text is PREFIX, the id in ID_DIGITS hex digits, and the secret."""

    PREFIX: ClassVar[str] = ""
    ID_DIGITS: ClassVar[int] = 16

    secret_hash = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        abstract = True


class BearerToken(SecretRow):
    """A token of a program.

    A trigger rejects deleting a row, changing its signed columns, and changing `revoked_at` once it is set.
    """

    HOLDER: ClassVar[str]  # the field that says whose it is

    public_id = models.TextField(primary_key=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= timezone.now()

    @property
    def is_valid(self) -> bool:
        """Whether a program can still use it."""
        return self.revoked_at is None and not self.is_expired


class SignedAct(SignedRow):
    """One act on a subject, such as a prompt. The acts on each subject are numbered from 1 without gaps.

    A trigger refuses changes and deletions.
    """

    seq = models.IntegerField()
    act = models.TextField()
    by = models.TextField(null=True)  # None is the command line
    at = models.DateTimeField()

    class Meta:
        abstract = True


class AuditEntry(models.Model):
    """An act on a run or approval, chained per run by MACs. A trigger refuses to change or delete a row.

    Its `id` has no index: a row is found by run and `seq`.
    """

    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="audit", db_index=False, db_constraint=False
    )
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.TextField(null=True)  # None is the system
    token = models.TextField(null=True)  # the API token the actor used
    act = models.TextField()
    subject = models.TextField()
    detail = models.TextField()  # JSON text
    hash = models.TextField()  # the MAC under `key_id`, over the row and the MAC before
    key_id = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="audit_order"),
        ]


class AuditHead(models.Model):
    """The end of a run's audit chain: the number of its rows, with a MAC over it and the MAC of the last row.

    Each append replaces it, so `verify` notices that rows were deleted at the end.
    """

    run_id = models.UUIDField(primary_key=True)
    seq = models.BigIntegerField()
    mac = models.TextField()
    key_id = models.TextField()
