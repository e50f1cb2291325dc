"""The tables of the approvals room."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("runtime", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Token",
            fields=[
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                ("secret_hash", models.TextField()),
                ("scopes", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("actor", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("act", models.TextField()),
                ("subject", models.TextField()),
                ("detail", models.TextField()),
                ("previous", models.TextField()),
                ("hash", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="audit",
                        to="runtime.run",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="audit_order")],
            },
        ),
        migrations.CreateModel(
            name="Request",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("gate", models.UUIDField(unique=True)),
                (
                    "kind",
                    models.TextField(choices=[("approval", "approval"), ("in_doubt", "in_doubt")]),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("tool", models.TextField()),
                ("args", models.TextField()),
                ("schema", models.TextField()),
                ("result_schema", models.TextField(null=True)),
                ("path", models.JSONField()),
                ("effect", models.TextField()),
                ("risk", models.TextField()),
                ("sentence", models.TextField()),
                ("action_digest", models.TextField()),
                ("nonce", models.TextField(unique=True)),
                ("policy_version", models.TextField()),
                ("requester", models.TextField()),
                ("request_digest", models.TextField()),
                ("seal", models.TextField()),
                ("seal_key_id", models.TextField()),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("pending", "Pending"),
                            ("approved", "Approved"),
                            ("denied", "Denied"),
                            ("answered", "Answered"),
                            ("expired", "Expired"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("decided_by", models.TextField(null=True)),
                ("decided_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(null=True)),
                ("statement", models.TextField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="requests",
                        to="runtime.run",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["created_at", "id"], name="request_order"),
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["created_at", "id"],
                        name="request_pending",
                    ),
                    models.Index(fields=["requester"], name="request_requester"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("decided_at", None),
                                ("decided_by", None),
                                ("key_id", None),
                                ("reason", None),
                                ("signature", None),
                                ("statement", None),
                                ("status", "pending"),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("decided_by__isnull", False),
                                ("key_id__isnull", False),
                                ("reason__isnull", False),
                                ("signature__isnull", False),
                                ("statement__isnull", False),
                                ("status__in", ["approved", "denied", "answered"]),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("key_id", None),
                                ("reason__isnull", False),
                                ("signature", None),
                                ("statement", None),
                                ("status__in", ["expired", "cancelled"]),
                            ),
                            _connector="OR",
                        ),
                        name="request_decided_by_somebody",
                    )
                ],
            },
        ),
    ]
