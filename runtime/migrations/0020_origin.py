"""Runs have an origin: the people who started or steered them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0019_spent")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="origin",
            field=models.JSONField(db_default=[]),
        ),
    ]
