"""Adds the extensions of an approval's deadline."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_outbox")]

    operations = [
        migrations.AddField("approval", "first_expires_at", models.DateTimeField(null=True)),
        migrations.AddField("approval", "extensions", models.TextField(null=True)),
    ]
