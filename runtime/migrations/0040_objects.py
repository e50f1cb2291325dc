"""Adds the keys of contents in the object store, those of dropped objects, and the wait of a run for the store."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0039_sources"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="awaits_store",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="blob",
            name="place",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="blob",
            name="size",
            field=models.BigIntegerField(null=True),
        ),
        migrations.CreateModel(
            name="DroppedObject",
            fields=[
                ("place", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
