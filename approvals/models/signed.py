"""Defines what signed tables have in common."""

from typing import ClassVar

from django.db import models

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
