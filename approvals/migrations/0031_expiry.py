"""A request says for lists what follows if no person decides, and whether enough people are left."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0030_notices")]

    operations: ClassVar = [
        migrations.AddField("request", "next_step", models.TextField(db_default="", default="")),
        migrations.AddField("request", "next_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "request", "escalated", models.SmallIntegerField(db_default=0, default=0)
        ),
        migrations.AddField("request", "undecidable_at", models.DateTimeField(null=True)),
    ]
