"""Defines the tables of decisions on changes of agents, and of their withdrawals."""

from django.db import models

from approvals.models.signed import SignedRow


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
