"""Every version of an agent that a worker ever had."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0002_sentform")]

    operations = [
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
                "indexes": [
                    models.Index(fields=["agent", "published_at"], name="agent_versions"),
                ],
            },
        ),
    ]
