"""Defines the tables of the channels of people, and of the notices that each was sent."""

from uuid import uuid4

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


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
