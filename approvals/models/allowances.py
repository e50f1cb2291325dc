"""Defines the table of acts on allowances."""

from django.db import models

from approvals.models.signed import SignedAct


class AllowanceAct(SignedAct):
    """An act on an allowance. People sign theirs: proposed, confirmed, and revoked, which is the last.

    Between them stand the uses, one row for each call that the allowance passed. The unique number
    makes a use and a revocation exclude each other, and two uses never share a place.
    """

    class AllowanceChange(models.TextChoices):
        PROPOSED = "proposed"  # with the terms; it waits for a second person
        CONFIRMED = "confirmed"  # with the terms again and who proposed them: calls may be passed
        USED = "used"  # by a worker, in the step that passes the call; not signed
        REVOKED = "revoked"  # or withdrawn, before it was confirmed

    KIND = "allowance"
    SIGNED_FIELDS = (
        *("allowance", "seq", "act", "tool", "ends_at", "terms"),
        *("proposed_by", "by", "at", "reason"),
    )

    allowance = models.UUIDField()
    act = models.TextField(choices=AllowanceChange.choices)
    tool = models.TextField(default="", db_default="")
    ends_at = models.DateTimeField(null=True)
    terms = models.TextField(default="", db_default="")  # JSON
    proposed_by = models.TextField(null=True)
    reason = models.TextField(default="", db_default="")
    run = models.UUIDField(null=True)
    frame = models.TextField(null=True)
    call = models.TextField(null=True)
    approval = models.UUIDField(null=True)
    signature = models.TextField(default="", db_default="")  # hex; empty for a use
    key_id = models.TextField(default="", db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["allowance", "seq"], name="allowance_order"),
            models.UniqueConstraint(
                fields=["run", "frame", "call"],
                name="allowance_used_once",
                condition=models.Q(act="used"),
            ),
        ]
        indexes = [
            models.Index(
                fields=["tool", "ends_at"],
                name="allowance_tool",
                condition=models.Q(act="confirmed"),
            ),
        ]
