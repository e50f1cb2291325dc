"""Adds the parts of replies that models are giving."""

from typing import ClassVar

from django.db import migrations, models
from django.db.models.deletion import PROTECT


class Migration(migrations.Migration):
    """Add the table."""

    dependencies: ClassVar = [("runtime", "0040_objects")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="PartialReply",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("frame", models.TextField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False, on_delete=PROTECT, related_name="+", to="runtime.run"
                    ),
                ),
            ],
        ),
    ]
