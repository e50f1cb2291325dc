"""Adds the link of a request to the one that it revises."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add two columns, which other requests leave at their defaults."""

    dependencies = [("approvals", "0026_readings")]

    operations = [
        migrations.AddField(
            model_name="request", name="revises", field=models.UUIDField(null=True)
        ),
        migrations.AddField(
            model_name="request", name="revision", field=models.SmallIntegerField(db_default=1)
        ),
    ]
