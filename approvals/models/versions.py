"""Defines the table of decisions on changes of agents."""

from django.db import models


class VersionDecision(models.Model):
    """An admin's decision that runs continue from version `before` of an agent to `after`, signed.

    A trigger refuses changes and deletions. `count` is the number of runs that waited, as the admin confirmed it.
    """

    agent = models.TextField()
    before = models.TextField()
    after = models.TextField()
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    reason = models.TextField()
    count = models.IntegerField()
    at = models.DateTimeField()
    signature = models.TextField(null=True)  # hex
    key_id = models.TextField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["agent", "before", "after", "-id"], name="version_decision_pair")
        ]
