"""Defines the tables of what people have beside their accounts, which are Django's own."""

from uuid import uuid4

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models

from approvals.models.signed import SignedAct, SignedRow


class Token(SignedRow):
    """A bearer token of the API. Only the hash of the secret is stored.

    A trigger rejects deleting a row, changing its signed columns, and changing `revoked_at` once it is set.
    """

    KIND = "token"
    SIGNED_FIELDS = (
        *("public_id", "owner_id", "secret_hash", "scopes"),
        *("name", "created_at", "expires_at"),
    )

    public_id = models.TextField(primary_key=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tokens"
    )
    secret_hash = models.TextField()
    scopes = models.JSONField()
    name = models.TextField(default="", db_default="")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class Assignment(SignedAct):
    """An act on a group or a password that a person was given.

    The row with the highest `seq` of a person and a right is the current one.
    """

    class AssignmentChange(models.TextChoices):
        GIVEN = "given"  # by an admin, or on the command line
        CONFIRMED = "confirmed"  # by a second admin, or on the command line
        CHANGED = "changed"  # the person chose another password; the giver stays
        ENDED = "ended"  # taken away, or the person was disabled

    KIND = "assignment"
    SIGNED_FIELDS = (
        *("person_id", "username", "what", "seq", "act", "by", "at"),
        *("givers", "given_at", "needs_second", "confirmed_by", "confirmed_at", "digest"),
    )

    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="assignments"
    )
    username = models.TextField()
    what = models.TextField()  # the group's name, or `password`
    act = models.TextField(choices=AssignmentChange.choices)
    givers = models.JSONField()  # the admin who gave it, then the givers of that admin's own right
    given_at = models.DateTimeField()
    needs_second = models.BooleanField()  # it does not count before a second admin confirms it
    confirmed_by = models.TextField(null=True)  # None with a time is the command line
    confirmed_at = models.DateTimeField(null=True)
    digest = models.TextField(null=True)  # of the stored password

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "what", "seq"], name="assignment_order"),
        ]
        indexes = [
            GinIndex(
                fields=["givers"],
                name="assignment_givers",
                condition=models.Q(what="password", confirmed_at__isnull=True),
            ),
        ]


class PasswordLink(SignedRow):
    """A link with which a person chooses a password, once. Only the hash of its secret is stored.

    A trigger rejects deleting a row, changing its signed columns, and changing `ended_at` once it is set.
    """

    KIND = "password link"
    SIGNED_FIELDS = ("public_id", "person_id", "secret_hash", "by", "created_at", "expires_at")

    public_id = models.TextField(primary_key=True)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="password_links"
    )
    secret_hash = models.TextField()
    by = models.TextField(null=True)  # the admin who made it; None is the command line
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)  # used, or replaced by a newer one


class LoginFailures(models.Model):
    """The failed logins of one name from one address; `at` is the last one. Kept until they no longer count."""

    address = models.TextField()  # empty if it is unknown
    username = models.TextField()
    failures = models.IntegerField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["address", "username"], name="login_failures"),
        )


class TimePreference(models.Model):
    """The time zone and the clock, of 24 or 12 hours, in which a person reads times. An empty zone is the browser's."""

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        primary_key=True,
        related_name="time_preference",
    )
    zone = models.TextField()
    clock = models.TextField()


class SavedView(models.Model):
    """A list of the inbox, or of the `page` runs, that a person named. `place` has the parameters of its address."""

    id = models.UUIDField(primary_key=True, default=uuid4)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="saved_views"
    )
    name = models.TextField()
    page = models.TextField(default="inbox", db_default="inbox")
    place = models.JSONField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["owner", "name"], name="saved_view_name"),)


class Absence(SignedAct):
    """An act of a person about being away: they name a deputy for some days, or it ends.

    The row with the highest `seq` of a person is the current one.
    """

    class AbsenceChange(models.TextChoices):
        SET = "set"
        ENDED = "ended"  # by either of the two, an admin, or on the command line

    KIND = "absence"
    SIGNED_FIELDS = ("username", "seq", "act", "deputy", "starts", "ends", "by", "at")

    username = models.TextField()
    act = models.TextField(choices=AbsenceChange.choices)
    deputy = models.TextField()
    starts = models.DateTimeField()
    ends = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["username", "seq"], name="absence_order"),)
        indexes = (models.Index(fields=["deputy"], name="absence_deputy"),)


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
