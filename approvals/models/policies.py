"""Defines the table of acts on the policy."""

from django.db import models


class PolicyAct(models.Model):
    """An act on a version of the policy, signed. A trigger refuses changes and deletions.

    The acts are numbered without gaps, so a deleted one is noticed. The version in force is that of the last act with
    a past `effective_at` that was not withdrawn before.
    """

    class PolicyChange(models.TextChoices):
        PROPOSED = "proposed"  # with the text; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in force at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in force

    seq = models.IntegerField(primary_key=True)
    act = models.TextField(choices=PolicyChange.choices)
    number = models.IntegerField()  # of the version
    text = models.TextField()  # YAML; empty unless the act is PROPOSED
    by = models.TextField(null=True)  # None is the command line
    at = models.DateTimeField()
    effective_at = models.DateTimeField(null=True)
    signature = models.TextField()  # hex
    key_id = models.TextField()
