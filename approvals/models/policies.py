"""Defines the table of acts on the policy."""

from django.db import models

from approvals.models.signed import SignedAct


class PolicyAct(SignedAct):
    """An act on a version of the policy.

    The version in force is that of the last act with a past `effective_at` that was not withdrawn before.
    """

    class PolicyChange(models.TextChoices):
        PROPOSED = "proposed"  # with the text; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in force at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in force

    KIND = "policy"
    SIGNED_FIELDS = ("seq", "act", "number", "text", "by", "at", "effective_at")

    seq = models.IntegerField(primary_key=True)
    act = models.TextField(choices=PolicyChange.choices)
    number = models.IntegerField()  # of the version
    text = models.TextField(default="")  # YAML; empty unless the act is PROPOSED
    effective_at = models.DateTimeField(null=True)
