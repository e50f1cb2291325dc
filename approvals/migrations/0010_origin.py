"""The people in a run's origin, with an index that finds a person's own requests among a million."""

from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0009_keyed"), ("runtime", "0020_origin")]

    operations = [
        migrations.AddField(
            model_name="request",
            name="origin",
            field=models.JSONField(db_default=[]),
        ),
        migrations.AddField(
            model_name="request",
            name="excluded",
            field=models.JSONField(db_default=[]),
        ),
        migrations.AddIndex(
            model_name="request",
            index=GinIndex(
                condition=models.Q(("status", "pending")),
                fields=["excluded"],
                name="request_excluded",
                opclasses=["jsonb_path_ops"],
            ),
        ),
    ]
