"""The heads of audit chains, and indexes of the history by deputy and by voter."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # indexes are created concurrently

    dependencies: ClassVar = [("approvals", "0042_mail_about_runs")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="AuditHead",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False), ("decided_for__isnull", False)),
                fields=["decided_for", "-decided_at", "-id"],
                name="request_history_deputy",
            ),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                condition=models.Q(
                    ("decided_at__isnull", False), models.Q(("voted", []), _negated=True)
                ),
                fields=["-decided_at", "-id"],
                name="request_history_votes",
            ),
        ),
    ]
