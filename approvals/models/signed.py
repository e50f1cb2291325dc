"""Defines what signed tables have in common."""

from typing import ClassVar

from django.db import models
from django.utils import timezone

from runtime.keyring import purposes


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
