"""A decision may be taken back for a while."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0006_halts")]

    operations = [
        migrations.AddField(
            model_name="request",
            name="effective_at",
            field=models.DateTimeField(null=True),
        ),
    ]
