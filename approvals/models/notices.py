"""Defines the tables of mail about approvals that wait: who wants it, and who was mailed about which approval."""

from django.conf import settings
from django.db import models


class MailPreference(models.Model):
    """The wish of a person to be mailed: `about` approvals that wait for them, and about their own `runs`.

    Without a row they get no mail.
    """

    class About(models.TextChoices):
        OFF = "off"
        ALL = "all"
        HIGH = "high"  # only high risk and calls in doubt

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        primary_key=True,
        related_name="mail_preference",
    )
    address = models.TextField()
    about = models.TextField(choices=About.choices)
    runs = models.BooleanField(db_default=False)
    since = models.DateTimeField()  # nothing from before is mailed
    confirmed_at = models.DateTimeField(
        null=True
    )  # when the mail server took the first mail to this address
    problem = models.TextField(default="")  # why the last mail was refused; empty after a success
    retry_at = models.DateTimeField(null=True)  # no mail before, after a refusal


class SentMail(models.Model):
    """A mail to a person about an approval or an ended run, so that each is mailed once. Deleted after 90 days."""

    about = models.UUIDField()  # an approval or a run
    person = models.TextField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["person", "about"], name="sent_mail_once"),)
