"""Which version of each agent a worker has."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0004_contents")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="agents",
            field=models.JSONField(db_default={}),
        ),
    ]
