"""Defines the tables of agents outside that ask for approvals: their instances and webhooks, and uses of approvals."""

from uuid import uuid4

from django.conf import settings
from django.db import models

from approvals.models.signed import SignedRow


class Instance(SignedRow):
    """One installed agent outside. Its requests are runs of its `owner`, who provisioned it.

    Only the hash of its credential is stored, and for some days the credential itself, sealed, because a repeated
    provisioning answers with the same one. A trigger rejects deleting a row, changing its signed columns, and changing
    `deleted_at` once it is set.
    """

    KIND = "instance"
    SIGNED_FIELDS = ("id", "owner_id", "secret_hash", "created_at")

    id = models.UUIDField(primary_key=True, default=uuid4)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="instances"
    )
    name = models.TextField()
    secret_hash = models.TextField()
    created_at = models.DateTimeField()
    idempotency_key = models.TextField()  # the hash of the key of its provisioning
    fingerprint = models.TextField()  # of the fields that came with it
    sealed = models.JSONField(null=True)  # the credential
    updates = models.JSONField(db_default={})  # of the last days, by the hash of their keys
    deleted_at = models.DateTimeField(null=True)
    last_request_at = models.DateTimeField(null=True)
    framework = models.TextField(db_default="")  # that of its last request, as it says

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
