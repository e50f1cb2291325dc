"""Adds the extensions of an approval's deadline."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0005_instance_last_request")]

    operations = [
        migrations.AddField("approval", "first_expires_at", models.DateTimeField(null=True)),
        migrations.AddField("approval", "extensions", models.TextField(null=True)),
    ]
