"""A run may have been handed over to another installation."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0006_stops")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="status",
            field=models.TextField(
                choices=[
                    ("queued", "queued"),
                    ("running", "running"),
                    ("waiting", "waiting"),
                    ("suspended", "suspended"),
                    ("cancelling", "cancelling"),
                    ("completed", "completed"),
                    ("failed", "failed"),
                    ("cancelled", "cancelled"),
                    ("exported", "exported"),
                    ("quarantined", "quarantined"),
                ],
                default="queued",
            ),
        ),
    ]
