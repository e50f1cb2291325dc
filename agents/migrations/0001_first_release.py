"""The tables of agents."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [("agents", "0001_initial"), ("agents", "0002_agent_title")]
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="PublishedAgent",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("title", models.TextField(db_default="")),
                ("description", models.TextField()),
                ("fingerprint", models.TextField()),
                ("input_schema", models.JSONField()),
                ("tools", models.JSONField()),
                ("subagents", models.JSONField()),
                ("steps", models.JSONField(null=True)),
                ("thread_memory", models.JSONField(null=True)),
                (
                    "published_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AgentVersion",
            fields=[
                ("fingerprint", models.TextField(primary_key=True, serialize=False)),
                ("agent", models.TextField()),
                ("facts", models.TextField()),
                (
                    "published_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["agent", "published_at"], name="agent_versions")],
            },
        ),
        migrations.CreateModel(
            name="RateLimit",
            fields=[
                ("provider", models.TextField(primary_key=True, serialize=False)),
                ("gap", models.FloatField()),
                ("served", models.FloatField()),
                ("since", models.DateTimeField()),
                ("issued", models.BigIntegerField()),
                ("hit_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="FormSubmission",
            fields=[
                ("number", models.UUIDField(primary_key=True, serialize=False)),
                ("person", models.TextField()),
                ("run", models.UUIDField(null=True)),
                (
                    "sent_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
    ]
