"""Defines the tables of messages to people and programs, and of programs that are told of events."""

from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models


class OutboxMessage(models.Model):
    """A message to another program, until it arrived, was given up or is not wanted any more.

    It is written with the event that it tells, or before, without a `body`, which is composed after the event.
    Id and body never change from the first attempt on. The messages about one `subject` are sent in the order of their
    numbers, and those in one `lane` a few at a time.
    """

    class EndState(models.TextChoices):
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
    answer_body = models.TextField(default="", db_default="")  # the beginning of that answer
    ended_at = models.DateTimeField(null=True)
    ending = models.TextField(choices=EndState.choices, null=True)

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


class SlackRequest(models.Model):
    """The digest of a signed request of Slack, or of a link, that was used, so that it counts once."""

    digest = models.TextField(primary_key=True)
    at = models.DateTimeField(db_index=True)


class Subscription(models.Model):
    """A program of the company that is told of events. A trigger adds a message with each event that it wants.

    An empty `agent` or `tool` is any. `risk` is the least one. With a tool or a risk it gets no events of runs.
    """

    id = models.UUIDField(primary_key=True, default=uuid4)
    name = models.TextField()
    url = models.TextField()
    events = ArrayField(models.TextField())
    agent = models.TextField(db_default="", default="")  # the one at the root of the run
    tool = models.TextField(db_default="", default="")
    risk = models.TextField(db_default="", default="")
    with_arguments = models.BooleanField(db_default=False, default=False)
    secret = models.JSONField()  # sealed
    former_secret = models.JSONField(null=True)
    former_until = models.DateTimeField(null=True)  # both sign until then
    created_by = models.TextField()
    created_at = models.DateTimeField()
    paused_at = models.DateTimeField(null=True)
