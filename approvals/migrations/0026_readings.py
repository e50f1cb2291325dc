"""How people read the requests that they decided."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0025_request_ruled")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Reading",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("person", models.TextField()),
                ("first_seen_at", models.DateTimeField(null=True)),
                ("opened_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("visible_ms", models.IntegerField()),
                ("reading_ms", models.IntegerField()),
                ("sections", models.JSONField()),
                ("considered", models.BooleanField()),
                ("channel", models.TextField()),
                ("edits", models.IntegerField()),
                ("undone", models.IntegerField(db_default=0)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="readings",
                        to="approvals.request",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("request", "person"), name="reading_once")
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["-decided_at"],
                        name="reading_decided",
                    )
                ],
            },
        ),
    ]
