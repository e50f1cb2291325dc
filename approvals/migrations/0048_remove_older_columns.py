"""Columns and forms of rows go that no release wrote."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0047_given_passwords")]

    operations = [
        migrations.DeleteModel("Adoption"),
        migrations.RemoveField("auditentry", "previous"),
        migrations.AlterField("auditentry", "key_id", models.TextField()),
        migrations.AlterField(
            "assignment",
            "act",
            models.TextField(
                choices=[
                    ("given", "Given"),
                    ("confirmed", "Confirmed"),
                    ("changed", "Changed"),
                    ("ended", "Ended"),
                ]
            ),
        ),
    ]
