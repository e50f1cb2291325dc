"""Defines the table of audited acts."""

from django.db import models

from runtime.models import Run


class AuditEntry(models.Model):
    """An act on a run or request, chained per run by MACs. A trigger refuses to change or delete a row.

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
    previous = models.TextField()  # the hash of the row before; empty if `hash` is truncated
    hash = models.TextField()  # the MAC under `key_id`
    key_id = models.TextField(null=True)  # None in rows of earlier versions, whose hash has no key

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="audit_order"),
        ]
