"""A tool's schema is stored once. It was a third of a pending request."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0018_excluded_others")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="ToolSchema",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("body", models.TextField()),
            ],
        ),
    ]
