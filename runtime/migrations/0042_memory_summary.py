"""Marks summaries of what runs remember."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column."""

    dependencies: ClassVar = [("runtime", "0041_partial_replies")]

    operations: ClassVar = [
        migrations.AddField("blob", "is_summary", models.BooleanField(db_default=False)),
    ]
