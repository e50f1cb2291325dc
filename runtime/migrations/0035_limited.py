"""Adds the model calls of a run that wait for the rate limit of their provider."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0034_pages")]

    operations: ClassVar = [
        migrations.AddField("run", "limited", models.JSONField(null=True)),
    ]
