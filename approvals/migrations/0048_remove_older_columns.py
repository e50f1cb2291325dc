"""Rights and hand-overs without a signature are not adopted: no release wrote any."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0047_given_passwords")]

    operations = [
        migrations.DeleteModel("Adoption"),
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
