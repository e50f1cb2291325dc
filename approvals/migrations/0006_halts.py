"""Gates of a frame itself: a hold, a limit, a changed version."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0005_removed")]

    operations = [
        migrations.AlterField(
            model_name="request",
            name="kind",
            field=models.TextField(
                choices=[
                    (kind, kind) for kind in ("approval", "in_doubt", "hold", "limit", "version")
                ]
            ),
        ),
    ]
