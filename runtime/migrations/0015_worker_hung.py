"""A worker whose tools hang says so with its beat, and does not count as ready."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0014_pushed")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="hung",
            field=models.BooleanField(db_default=False),
        ),
    ]
