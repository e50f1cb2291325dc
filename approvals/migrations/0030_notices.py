"""Mail about requests that wait: who wants it, and what they were mailed about."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("approvals", "0029_allowances"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="MailPreference",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="mail_preference",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("address", models.TextField()),
                ("about", models.TextField(choices=[("all", "All"), ("high", "High")])),
                ("since", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(default="")),
                ("retry_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("request", models.UUIDField()),
                ("person", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("person", "request"), name="notice_once")
                ],
            },
        ),
    ]
