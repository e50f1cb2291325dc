"""Adds the previews of edited arguments."""

from typing import ClassVar

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Add the table."""

    dependencies: ClassVar = [("runtime", "0049_suspected_runs")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="EditPreview",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("run", models.UUIDField()),
                ("gate", models.UUIDField()),
                ("by", models.TextField()),
                ("args", models.TextField()),
                ("at", models.DateTimeField(db_default=Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("result", models.TextField(db_default="")),
                ("mac", models.TextField(db_default="")),
                ("key_id", models.TextField(db_default="")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("gate", "by"), name="edit_preview_once")
                ],
                "indexes": [models.Index(fields=["run"], name="edit_preview_of")],
            },
        ),
    ]
