"""Adds the addresses of webhooks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0037_threads"),
    ]

    operations = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("trigger", models.UUIDField(primary_key=True, serialize=False)),
                ("address", models.TextField(unique=True)),
                ("refused", models.IntegerField(db_default=0)),
                ("refused_at", models.DateTimeField(null=True)),
                ("refused_why", models.TextField(db_default="")),
            ],
        ),
    ]
