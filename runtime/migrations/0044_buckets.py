"""Remembers how far a bucket was listed, and when one that did not answer is asked again."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the columns."""

    dependencies: ClassVar = [("runtime", "0043_archive")]

    operations: ClassVar = [
        migrations.AddField("source", "cursor", models.TextField(db_default="")),
        migrations.AddField("source", "not_before", models.DateTimeField(null=True)),
    ]
