"""Adds the sources of triggers, and the files of watched folders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0038_webhooks"),
    ]

    operations = [
        migrations.CreateModel(
            name="Source",
            fields=[
                ("trigger", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("place", models.TextField()),
                ("looked_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(db_default="")),
            ],
        ),
        migrations.CreateModel(
            name="WatchedFile",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "folder",
                        "name",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("folder", models.TextField()),
                ("name", models.TextField()),
                ("stamp", models.TextField()),
                ("seen_at", models.DateTimeField()),
                ("done", models.BooleanField(db_default=False)),
                ("digest", models.TextField(db_default="")),
                ("gone_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("gone_at__isnull", True)),
                        fields=["trigger"],
                        name="watched_file_there",
                    )
                ],
            },
        ),
    ]
