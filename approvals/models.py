"""The tables of this room: columns and constraints. People and groups are Django's own."""

from django.conf import settings
from django.db import models

from runtime.models import Run


class Request(models.Model):
    """What reviewers see of an approval gate: a frozen picture, and what became of it.

    `args` and `schema` are JSON as text, because jsonb would rewrite numbers and drop what it
    thinks is the same.
    """

    class Status(models.TextChoices):
        PENDING = "pending"  # nobody has decided
        APPROVED = "approved"  # the call may start, once
        DENIED = "denied"  # the call never starts; the model hears the reason

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="requests")
    gate = models.UUIDField(unique=True)
    frame = models.TextField()
    call = models.TextField()
    tool = models.TextField()
    args = models.TextField()
    schema = models.TextField()
    path = models.JSONField()
    effect = models.TextField()
    risk = models.TextField()
    sentence = models.TextField()
    action_digest = models.TextField()
    nonce = models.TextField(unique=True)
    policy_version = models.TextField()
    requester = models.TextField()
    request_digest = models.TextField()
    status = models.TextField(choices=Status.choices, default=Status.PENDING)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    decided_by = models.TextField(null=True)
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(null=True)  # verbatim, as the decider wrote it

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="request_decided_by_somebody",
                condition=models.Q(status="pending", decided_by=None, decided_at=None, reason=None)
                | models.Q(
                    status__in=["approved", "denied"],
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    reason__isnull=False,
                ),
            ),
        ]
        indexes = [
            models.Index(fields=["created_at", "id"], name="request_order"),
            models.Index(
                fields=["created_at", "id"],
                name="request_pending",
                condition=models.Q(status="pending"),
            ),
            models.Index(fields=["requester"], name="request_requester"),
        ]


class Token(models.Model):
    """A bearer token of the API. The secret is not kept, only its hash."""

    public_id = models.TextField(primary_key=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tokens"
    )
    secret_hash = models.TextField()
    scopes = models.JSONField()
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class AuditEntry(models.Model):
    """Who did what, chained per run by hashes. A trigger refuses to change or delete a row."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="audit")
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.TextField(null=True)  # None is the system
    token = models.TextField(null=True)  # the API token the actor used
    act = models.TextField()
    subject = models.TextField()
    detail = models.TextField()  # JSON text
    previous = models.TextField()
    hash = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="audit_order"),
        ]
