"""A request may be a question. Only Django's state changes: the column takes any text."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0033_versiondecision")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="request",
            name="kind",
            field=models.TextField(
                choices=[
                    ("approval", "approval"),
                    ("question", "question"),
                    ("in_doubt", "in_doubt"),
                    ("hold", "hold"),
                    ("limit", "limit"),
                    ("version", "version"),
                ]
            ),
        )
    ]
