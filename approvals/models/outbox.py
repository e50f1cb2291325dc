"""Defines the tables of messages: to programs that are told of events, and to the channels of people."""

from uuid import uuid4

from django.conf import settings
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
    ending = models.TextField(null=True)  # an EndState

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


class NoticeChannel(models.Model):
    """A way to tell a person about requests that wait for them, from a risk on, and about their own `runs`.

    An empty `from_risk` is no request. `address` has the fields of its kind; secrets in it are sealed.
    """

    class Kind(models.TextChoices):
        MAIL = "mail"
        APPRISE = "apprise"  # an Apprise URL: Teams and others
        PUSH = "push"  # a browser
        SLACK = "slack"

    class Detail(models.TextChoices):
        NOTHING = "nothing"  # that something waits, and a link
        TITLE = "title"  # the sentence of a request too
        ARGUMENTS = "arguments"  # and the arguments that are no secret

    id = models.UUIDField(primary_key=True, default=uuid4)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="channels"
    )
    kind = models.TextField()
    address = models.JSONField()
    from_risk = models.TextField(db_default="", default="")
    runs = models.BooleanField(db_default=False, default=False)
    shows = models.TextField(db_default=Detail.TITLE, default=Detail.TITLE)
    since = models.DateTimeField()  # nothing from before is told
    confirmed_at = models.DateTimeField(null=True)  # when a server took the first notice
    problem = models.TextField(db_default="", default="")  # of the last attempt


class SentNotice(models.Model):
    """What a channel was told about a request or a run, so that it hears each event once. Deleted after 90 days."""

    channel = models.ForeignKey(
        NoticeChannel, on_delete=models.CASCADE, related_name="sent_notices"
    )
    about = models.UUIDField()  # a request or a run
    event = models.TextField(db_default="", default="")  # empty: that it waits, or ended
    at = models.DateTimeField()
    message = models.UUIDField()  # of the outbox

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["channel", "about", "event"], name="sent_notice_once"),
        )
        indexes = (models.Index(fields=["channel", "at"], name="sent_notice_at"),)


class NoticeTimes(models.Model):
    """When a person hears nothing, and the hours of the digest for news that are not urgent; without hours at once."""

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        primary_key=True,
        related_name="notice_times",
    )
    zone = models.TextField()
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)
    urgent_at_night = models.BooleanField(db_default=False, default=False)  # in quiet hours too
    digest = ArrayField(models.SmallIntegerField(), db_default=[], default=list)  # hours
