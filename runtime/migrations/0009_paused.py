"""A run can be paused."""

from django.db import migrations, models

STATUSES = [
    "queued",
    "running",
    "waiting",
    "suspended",
    "paused",
    "cancelling",
    "completed",
    "failed",
    "cancelled",
    "exported",
    "quarantined",
]


class Migration(migrations.Migration):
    dependencies = [("runtime", "0008_retention")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="status",
            field=models.TextField(
                choices=[(status, status) for status in STATUSES], default="queued"
            ),
        ),
    ]
