"""Defines the table of acts on the policy."""

from django.db import models

from approvals.models.signed import SignedAct, SignedRow


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
    number = models.IntegerField()  # of the version
    text = models.TextField(default="")  # YAML; empty unless the act is PROPOSED
    effective_at = models.DateTimeField(null=True)


class PromptAct(SignedAct):
    """An act on a version of a prompt. Version 0 is the text in the code."""

    class PromptChange(models.TextChoices):
        SAVED = "saved"  # a new version, with its text
        LABELLED = "labelled"  # the label points to the version
        PROPOSED = "proposed"  # for production; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in production at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in production

    KIND = "prompt"
    SIGNED_FIELDS = (
        *("name", "seq", "act", "number", "text", "note", "label"),
        *("by", "token", "at", "effective_at"),
    )

    name = models.TextField()
    number = models.IntegerField()  # of the version
    text = models.TextField(default="")  # empty unless the act is SAVED, as the note
    note = models.TextField(default="")
    label = models.TextField(default="")  # empty unless the act is LABELLED
    token = models.TextField(null=True)  # the public id of the API token, None for a session
    effective_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["name", "seq"], name="prompt_act_once"),)


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


class VersionDecision(SignedRow):
    """An admin's decision that runs continue from version `before` of an agent to `after`, signed.

    A trigger refuses changes and deletions. `count` is the number of runs that waited, as the admin confirmed it.
    `withdrawn` is the number of withdrawals for the two versions before it: it counts as long as there are no more.
    """

    KIND = "version"
    SIGNED_FIELDS = (
        *("agent", "before", "after", "by", "token"),
        *("reason", "count", "at", "withdrawn"),
    )

    agent = models.TextField()
    before = models.TextField()
    after = models.TextField()
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    reason = models.TextField()
    count = models.IntegerField()
    at = models.DateTimeField()
    withdrawn = models.IntegerField(db_default=0, default=0)
    busy_runs = 0  # of a withdrawn one: they still continue, and their decision can still be undone

    class Meta:
        indexes = [
            models.Index(fields=["agent", "before", "after", "-id"], name="version_decision_pair")
        ]


class VersionWithdrawal(SignedRow):
    """An admin's withdrawal of every decision on two versions of an agent so far, signed.

    A trigger refuses changes and deletions.
    """

    KIND = "version withdrawal"
    SIGNED_FIELDS = ("agent", "before", "after", "by", "token", "reason", "at")

    agent = models.TextField()
    before = models.TextField()
    after = models.TextField()
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["agent", "before", "after"], name="version_withdrawal_pair")
        ]
