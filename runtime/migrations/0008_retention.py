"""When a run lost its payloads, and up to where its journal was removed."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0007_exported")]

    operations = [
        migrations.AddField(
            model_name="run", name="removed_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", False), ("removed_at__isnull", True)),
                fields=["ended_at"],
                name="run_to_remove",
            ),
        ),
        migrations.CreateModel(
            name="Pruning",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("head", models.TextField()),
                ("at", models.DateTimeField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
    ]
