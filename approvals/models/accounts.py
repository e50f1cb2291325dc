"""Defines the tables of what people have beside their accounts, which are Django's own.

The last ones are those of agents outside that ask for approvals, and of directories, which provision people and groups
with SCIM.
"""

from uuid import uuid4

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Lower

from approvals.models.signed import BearerToken, SecretRow, SignedAct, SignedRow


class Token(BearerToken):
    """A bearer token of the API."""

    KIND, PREFIX, HOLDER = "token", "sgn_", "owner"
    SIGNED_FIELDS = (
        *("public_id", "owner_id", "secret_hash", "scopes"),
        *("name", "created_at", "expires_at"),
    )

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tokens"
    )
    scopes = models.JSONField()
    name = models.TextField(default="", db_default="")


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


class PasswordLink(SecretRow):
    """A link with which a person chooses a password, once. Only the hash of its secret is stored.

    A trigger rejects deleting a row, changing its signed columns, and changing `ended_at` once it is set.
    """

    KIND = "password link"
    SIGNED_FIELDS = ("public_id", "person_id", "secret_hash", "by", "created_at", "expires_at")

    public_id = models.TextField(primary_key=True)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="password_links"
    )
    by = models.TextField(null=True)  # the admin who made it; None is the command line
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)  # used, or replaced by a newer one


class SecondFactor(SignedRow):
    """A second factor of a person: an authenticator app, a passkey, or a recovery code, which ends when it is used.

    A trigger rejects deleting a row, changing its signed columns, lowering `counter`, and changing `ended_at` once it
    is set.
    """

    class FactorKind(models.TextChoices):
        APP = "app"  # codes that change with the time (TOTP)
        PASSKEY = "passkey"
        RECOVERY_CODE = "recovery code"

    KIND = "second factor"
    SIGNED_FIELDS = ("id", "person_id", "kind", "name", "secret", "created_at")

    id = models.UUIDField(primary_key=True, default=uuid4)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="second_factors"
    )
    kind = models.TextField()  # a FactorKind
    name = models.TextField()
    secret = models.JSONField()  # sealed of an app, the public key of a passkey, the hash of a code
    created_at = models.DateTimeField()
    counter = models.BigIntegerField(default=0)  # of the last code or signature
    used_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)


class LoginFailures(models.Model):
    """The failed logins of one name from one address; `at` is the last one. Kept until they no longer count."""

    address = (
        models.TextField()
    )  # empty if it is unknown, `any` or `notices` for what a person does
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
    deputy = models.TextField()
    starts = models.DateTimeField()
    ends = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["username", "seq"], name="absence_order"),)
        indexes = (models.Index(fields=["deputy"], name="absence_deputy"),)


class Instance(SecretRow):
    """One installed agent outside. Its requests are runs of its `owner`, who provisioned it.

    Only the hash of its credential is stored, and for some days the credential itself, sealed, because a repeated
    provisioning answers with the same one. A trigger rejects deleting a row, changing its signed columns, and changing
    `deleted_at` once it is set.
    """

    KIND, PREFIX, ID_DIGITS = "instance", "sgi_", 32
    SIGNED_FIELDS = ("id", "owner_id", "secret_hash", "created_at")

    id = models.UUIDField(primary_key=True, default=uuid4)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="instances"
    )
    name = models.TextField()
    idempotency_key = models.TextField()  # the hash of the key of its provisioning
    fingerprint = models.TextField()  # of the fields that came with it
    sealed = models.JSONField(null=True)  # the credential
    updates = models.JSONField(db_default={})  # of the last days, by the hash of their keys
    deleted_at = models.DateTimeField(null=True)
    last_request_at = models.DateTimeField(null=True)
    framework = models.TextField(db_default="")  # that of its last request, as it says
    # Of a list: the requests that have not ended; `active`, `ended`, `owner disabled`, or `not signed`
    open_requests: int
    state: str

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="instance_key"),
        )


class InstanceWebhook(models.Model):
    """Where an instance is told that its requests have ended, with a sealed secret. The row ends with the instance."""

    instance = models.OneToOneField(
        Instance, on_delete=models.PROTECT, primary_key=True, related_name="webhook"
    )
    url = models.TextField()
    registration_id = models.TextField()
    secret = models.JSONField()
    since = models.DateTimeField()  # requests that ended before are not told


class ApprovalUse(models.Model):
    """The use of the approval of a run by its instance, once, and the outcome that it reported.

    A trigger rejects deleting a row, and changing a row except for a missing outcome; retention removes the note.
    """

    run = models.UUIDField(primary_key=True)
    instance = models.ForeignKey(Instance, on_delete=models.PROTECT, related_name="uses")
    idempotency_key = models.TextField()  # the hash
    used_at = models.DateTimeField()
    outcome = models.TextField(null=True)  # `succeeded` or `failed`
    note = models.TextField(null=True)
    reported_at = models.DateTimeField(null=True)


class DirectoryToken(BearerToken):
    """A bearer token with which a directory provisions."""

    KIND, PREFIX, HOLDER = "directory token", "sgd_", "directory"
    SIGNED_FIELDS = ("public_id", "directory", "secret_hash", "by", "created_at", "expires_at")

    directory = models.TextField()
    by = models.TextField(null=True)  # the admin who made it; None is the command line
    expires_at = models.DateTimeField()


class DirectoryEntry(SignedRow):
    """A person or a group of a directory. Each change is signed; who is in a group are assignments of its people."""

    KIND = "directory entry"
    SIGNED_FIELDS = ("id", "directory", "kind", "name", "external_id", "person_id", "version")

    id = models.UUIDField(primary_key=True, default=uuid4)
    directory = models.TextField()
    kind = models.TextField()  # `User`, `Group`, or `Deleted` of a person
    name = models.TextField()  # the username, or the name of the group
    external_id = models.TextField()  # the directory's own; empty without one
    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="entry"
    )
    version = models.IntegerField()
    attributes = models.JSONField()  # the names and addresses that were sent
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint("directory", "kind", Lower("name"), name="directory_name"),
            models.UniqueConstraint(
                fields=["directory", "kind", "external_id"],
                condition=~models.Q(external_id=""),
                name="directory_external_id",
            ),
        )


class MappingAct(SignedAct):
    """An act on a mapping: the people in the group `value` of a `source` have the right that it `gives`."""

    class MappingChange(models.TextChoices):
        PROPOSED = "proposed"  # it waits for a second admin
        CONFIRMED = "confirmed"  # by a second or the only admin, or on the command line
        WITHDRAWN = "withdrawn"  # before or after it was confirmed

    KIND = "mapping"
    SIGNED_FIELDS = ("source", "seq", "act", "value", "gives", "by", "at")

    source = models.TextField()  # `directory NAME` or `oidc:NAME`, which is the giver of the right
    value = models.TextField()
    gives = models.TextField()  # a group here, or `oidc:NAME`, to sign in there

    class Meta:
        constraints = (models.UniqueConstraint(fields=["source", "seq"], name="mapping_act_once"),)
