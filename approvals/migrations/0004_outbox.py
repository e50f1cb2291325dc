"""The outbox: messages to other programs, and where the decisions about an instance's requests are told."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0003_instances"),
    ]

    operations = [
        migrations.CreateModel(
            name="InstanceWebhook",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="webhook",
                        serialize=False,
                        to="approvals.instance",
                    ),
                ),
                ("url", models.TextField()),
                ("registration_id", models.TextField()),
                ("secret", models.JSONField()),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                ("id", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("kind", models.TextField()),
                ("destination", models.TextField()),
                ("lane", models.TextField()),
                ("subject", models.TextField()),
                ("body", models.TextField(null=True)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("next_at", models.DateTimeField()),
                ("gives_up_at", models.DateTimeField(null=True)),
                ("leased_until", models.DateTimeField(null=True)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("answer", models.TextField(db_default="", default="")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "ending",
                    models.TextField(
                        choices=[
                            ("delivered", "Delivered"),
                            ("given up", "Given Up"),
                            ("dropped", "Dropped"),
                        ],
                        null=True,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["lane", "next_at"],
                        name="outbox_lane",
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["subject", "number"],
                        name="outbox_subject",
                    ),
                    models.Index(fields=["destination", "-number"], name="outbox_destination"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", False)),
                        fields=["ended_at"],
                        name="outbox_ended",
                    ),
                ],
            },
        ),
    ]
