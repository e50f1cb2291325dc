"""Defines the table of how long people read the approvals that they decided."""

from django.db import models

from approvals.models.requests import Approval


class ReviewTime(models.Model):
    """How one person read an approval before their decision or vote, as their browser measured it.

    Nothing depends on these values: the browser may send any. Retention deletes the row with the approval's arguments.
    `sections` names each section of the page, with whether it came into view. `considered` is computed when it is
    stored. After an undo `decided_at` is empty until the person decides again.
    """

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="readings")
    person = models.TextField()
    first_seen_at = models.DateTimeField(null=True)  # in a list
    opened_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    visible_ms = models.IntegerField()  # while the tab was in front
    reading_ms = models.IntegerField()  # that the approval's words take
    sections = models.JSONField()
    considered = models.BooleanField()
    channel = models.TextField()
    edits = models.IntegerField()  # arguments that the person changed
    undone = models.IntegerField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "person"], name="review_time_once"),
        ]
        indexes = [
            models.Index(
                fields=["-decided_at"],
                name="review_time_decided",
                condition=models.Q(decided_at__isnull=False),
            ),
        ]
