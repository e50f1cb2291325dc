"""A run that waits for a provider of models says what that answered last."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0016_drop_partition")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="awaits",
            field=models.TextField(null=True),
        ),
    ]
