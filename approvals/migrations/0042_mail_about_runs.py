"""Mail about a person's own runs: one that ended, and a message of an agent that a reviewer released."""

from typing import ClassVar

from django.db import migrations, models

ABOUT = [("off", "Off"), ("all", "All"), ("high", "High")]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0041_prompts")]

    operations: ClassVar = [
        migrations.AddField("mailpreference", "runs", models.BooleanField(db_default=False)),
        migrations.AlterField("mailpreference", "about", models.TextField(choices=ABOUT)),
    ]
