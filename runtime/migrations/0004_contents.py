"""Results too big for an entry, once each by their hash, and the runs that refer to them."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0003_base")]

    operations = [
        migrations.CreateModel(
            name="Content",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("body", models.TextField()),
                (
                    "used_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ContentUse",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "content_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="runtime.run",
                    ),
                ),
                (
                    "content",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="runtime.content"
                    ),
                ),
            ],
        ),
    ]
