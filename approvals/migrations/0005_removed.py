"""When retention took the arguments and the sentence of a request."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0004_lists")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="request", name="removed_at", field=models.DateTimeField(null=True)
        ),
    ]
