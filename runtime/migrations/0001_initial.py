"""The tables of the engine, but for the journal, which is made in SQL because it is partitioned."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="JournalEntry",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("run_id", models.UUIDField()),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("commit_id", models.UUIDField()),
            ],
            options={
                "db_table": "runtime_journalentry",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("agent", models.TextField()),
                ("requester", models.TextField()),
                ("token", models.TextField(null=True)),
                ("business_key", models.TextField(null=True)),
                ("input", models.TextField()),
                ("output", models.TextField(null=True)),
                ("reason", models.TextField(null=True)),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("waiting", "waiting"),
                            ("suspended", "suspended"),
                            ("cancelling", "cancelling"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("quarantined", "quarantined"),
                        ],
                        default="queued",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                ("position", models.BigIntegerField(db_default=0)),
                ("head", models.TextField(db_default="")),
                ("due_at", models.DateTimeField(null=True)),
                ("epoch", models.BigIntegerField(db_default=0)),
                ("owner", models.UUIDField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("mailbox", models.BigIntegerField(db_default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("tool", models.TextField()),
                ("path", models.JSONField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("open", "Open"),
                            ("decided", "Decided"),
                            ("effective", "Effective"),
                            ("closed", "Closed"),
                        ],
                        default="open",
                    ),
                ),
                (
                    "opened_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("decided_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Signal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("body", models.TextField()),
                (
                    "effective_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("host", models.TextField()),
                ("process", models.IntegerField()),
                (
                    "started_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "beat_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Continuation",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="run_due"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["requester", "-id"], name="run_requester"),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(
                fields=("agent", "requester", "business_key"), name="run_business_key"
            ),
        ),
        migrations.AddField(
            model_name="gate",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="gates", to="runtime.run"
            ),
        ),
        migrations.AddField(
            model_name="signal",
            name="run",
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="runtime.run"),
        ),
        migrations.AddIndex(
            model_name="gate",
            index=models.Index(fields=["kind", "state"], name="gate_open"),
        ),
    ]
