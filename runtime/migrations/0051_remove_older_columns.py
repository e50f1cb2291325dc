"""Columns go that no release used."""

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("runtime", "0050_edit_previews")]

    operations = [
        migrations.RemoveField("run", "lease_until"),
        migrations.RemoveField("run", "lost_at"),
        migrations.AlterField("worker", "lease_until", models.DateTimeField(db_default=Now())),
    ]
