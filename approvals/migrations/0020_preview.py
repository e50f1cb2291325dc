"""A request keeps what the worker found out about its call before it asked."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0019_toolschema")]

    operations: ClassVar = [
        migrations.AddField("request", "preview", models.TextField(null=True)),
    ]
