"""A run says how many messages of people its agent has not heard yet."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0011_base_kept")]

    operations = [
        migrations.AddField(
            model_name="run", name="unheard", field=models.IntegerField(db_default=0)
        ),
    ]
