"""A hand-over is signed, so that the database cannot forge its note. Older ones have no signature."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0035_absences")]

    operations: ClassVar = [
        migrations.AddField("handover", "signature", models.TextField(db_default="")),
        migrations.AddField("handover", "key_id", models.TextField(db_default="")),
    ]
