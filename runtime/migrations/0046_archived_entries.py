"""Adds the files with removed entries of runs that go on."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Add the table."""

    dependencies: ClassVar = [("runtime", "0045_shorter_journals")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="ArchivedEntries",
            fields=[
                ("place", models.TextField(primary_key=True, serialize=False)),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField(null=True)),
                ("digest", models.TextField(db_default="")),
                ("size", models.BigIntegerField(db_default=0)),
                ("at", models.DateTimeField(db_default=Now())),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runtime.run",
                    ),
                ),
            ],
        ),
    ]
