"""Defines the tables of audited acts and of the heads of their chains."""

from django.db import models

from runtime.models import Run


class AuditEntry(models.Model):
    """An act on a run or approval, chained per run by MACs. A trigger refuses to change or delete a row.

    Its `id` has no index: a row is found by run and `seq`.
    """

    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="audit", db_index=False, db_constraint=False
    )
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.TextField(null=True)  # None is the system
    token = models.TextField(null=True)  # the API token the actor used
    act = models.TextField()
    subject = models.TextField()
    detail = models.TextField()  # JSON text
    hash = models.TextField()  # the MAC under `key_id`, over the row and the MAC before
    key_id = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="audit_order"),
        ]


class AuditHead(models.Model):
    """The end of a run's audit chain: the number of its rows, with a MAC over it and the MAC of the last row.

    Each append replaces it, so `verify` notices that rows were deleted at the end.
    """

    run_id = models.UUIDField(primary_key=True)
    seq = models.BigIntegerField()
    mac = models.TextField()
    key_id = models.TextField()
