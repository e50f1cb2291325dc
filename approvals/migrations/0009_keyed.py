"""Which key made the MAC of an audit row; rows of earlier versions have a hash alone."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0008_doubts")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="auditentry", name="key_id", field=models.TextField(null=True)
        ),
    ]
