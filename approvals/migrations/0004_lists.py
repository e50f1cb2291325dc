"""Indexes for the lists of the inbox, and for the last similar approval."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0003_groups"),
        ("runtime", "0003_base"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="request",
            index=models.Index(
                condition=models.Q(("status", "pending")),
                fields=["expires_at", "created_at", "id"],
                name="request_deadline",
            ),
        ),
        migrations.AddIndex(
            model_name="request",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)),
                fields=["-decided_at", "-id"],
                name="request_decided",
            ),
        ),
        migrations.AddIndex(
            model_name="request",
            index=models.Index(
                condition=models.Q(("kind", "approval"), ("status", "approved")),
                fields=["tool", "-decided_at"],
                name="request_similar",
            ),
        ),
    ]
