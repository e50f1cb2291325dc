"""Who may read a request, of those who decide its risk: the groups and people whom its rule names."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0043_heads_and_voters")]

    operations: ClassVar = [
        migrations.AddField("request", "readers", models.JSONField(null=True)),
    ]
