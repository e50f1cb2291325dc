"""Adds the arguments of an approval with changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add a column that is null in other requests."""

    dependencies = [("approvals", "0021_history")]

    operations = [
        migrations.AddField(model_name="request", name="edited", field=models.TextField(null=True)),
    ]
