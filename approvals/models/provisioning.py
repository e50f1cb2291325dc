"""Defines the tables of directories, which provision people and groups with SCIM, and of what groups give here."""

from uuid import uuid4

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower

from approvals.models.signed import BearerToken, SignedAct, SignedRow


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
        CONFIRMED = (
            "confirmed"  # by a second admin, by the only one after a day, or on the command line
        )
        WITHDRAWN = "withdrawn"  # before or after it was confirmed

    KIND = "mapping"
    SIGNED_FIELDS = ("source", "seq", "act", "value", "gives", "by", "at")

    source = models.TextField()  # `directory NAME` or `oidc:NAME`, which is the giver of the right
    act = models.TextField(choices=MappingChange.choices)
    value = models.TextField()
    gives = models.TextField()  # a group here, or `oidc:NAME`, to sign in there

    class Meta:
        constraints = (models.UniqueConstraint(fields=["source", "seq"], name="mapping_act_once"),)
