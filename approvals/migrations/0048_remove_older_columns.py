"""Columns and forms of rows go that no release wrote."""

from django.db import migrations, models

SIGNED = (
    "absence",
    "assignment",
    "handover",
    "policyact",
    "promptact",
    "token",
    "versiondecision",
    "versionwithdrawal",
)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0047_given_passwords")]

    operations = [
        *(
            migrations.AlterField(model, name, models.TextField())
            for model in SIGNED
            for name in ("signature", "key_id")
        ),
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
