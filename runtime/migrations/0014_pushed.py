"""A run that the sweeper had to push is claimed before it is loaded."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0013_waits")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="pushed",
            field=models.BooleanField(db_default=False),
        ),
    ]
