"""The calls in doubt among a million that wait for approval."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0007_undo")]

    operations = [
        migrations.AddIndex(
            model_name="request",
            index=models.Index(
                condition=models.Q(("kind", "in_doubt"), ("status", "pending")),
                fields=["created_at", "id"],
                name="request_doubt",
            ),
        ),
    ]
