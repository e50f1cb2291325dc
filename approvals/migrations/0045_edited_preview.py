"""Adds the preview that the person saw who approved a call with changes."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column."""

    dependencies: ClassVar = [("approvals", "0044_request_readers")]

    operations: ClassVar = [
        migrations.AddField("request", "edited_preview", models.TextField(null=True)),
    ]
