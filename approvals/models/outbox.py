"""Defines the table of messages to other programs."""

from uuid import uuid4

from django.db import models


class OutboxMessage(models.Model):
    """A message to another program, until it arrived, was given up or is not wanted any more.

    It is written with the event that it tells, or before, without a `body`, which is composed after the event.
    Id and body never change from the first attempt on. The messages about one `subject` are sent in the order of their
    numbers, and those in one `lane` a few at a time.
    """

    class Ending(models.TextChoices):
        DELIVERED = "delivered"  # the destination took it
        GIVEN_UP = "given up"  # no attempt succeeded in time
        DROPPED = "dropped"  # its destination is gone

    number = models.BigAutoField(primary_key=True)
    id = models.UUIDField(unique=True, default=uuid4)
    kind = models.TextField()
    destination = models.TextField()
    lane = models.TextField()
    subject = models.TextField()
    body = models.TextField(null=True)
    occurred_at = models.DateTimeField(null=True)  # the event
    next_at = models.DateTimeField()
    gives_up_at = models.DateTimeField(null=True)
    leased_until = models.DateTimeField(null=True)  # by the sweeper that is sending it
    attempts = models.IntegerField(default=0, db_default=0)
    answer = models.TextField(
        default="", db_default=""
    )  # of the last attempt: a status, or why none
    ended_at = models.DateTimeField(null=True)
    ending = models.TextField(choices=Ending.choices, null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["lane", "next_at"],
                name="outbox_lane",
                condition=models.Q(ended_at__isnull=True),
            ),
            models.Index(
                fields=["subject", "number"],
                name="outbox_subject",
                condition=models.Q(ended_at__isnull=True),
            ),
            models.Index(
                fields=["lane", "leased_until"],
                name="outbox_leased",
                condition=models.Q(ended_at__isnull=True, leased_until__isnull=False),
            ),
            models.Index(fields=["destination", "-number"], name="outbox_destination"),
            models.Index(
                fields=["ended_at"],
                name="outbox_ended",
                condition=models.Q(ended_at__isnull=False),
            ),
        ]
