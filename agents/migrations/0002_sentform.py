"""Forms that started a run, so that sending one twice starts one run."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="SentForm",
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
