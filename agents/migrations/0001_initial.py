"""The catalogue of published agents."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="PublishedAgent",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("description", models.TextField()),
                ("fingerprint", models.TextField()),
                ("input_schema", models.JSONField()),
                ("tools", models.JSONField()),
                ("subagents", models.JSONField()),
                ("steps", models.JSONField(null=True)),
                (
                    "published_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
    ]
