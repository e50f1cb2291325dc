"""The continuation that a compacted run's journal may begin at."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0010_poison")]

    operations = [
        migrations.CreateModel(
            name="Base",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
