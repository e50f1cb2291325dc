"""The lease is a worker process's, and no longer one of each run that it has.

A worker of the release before leaves the column null, and renews the leases of its runs as it did.
"""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0024_compression")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="worker", name="lease_until", field=models.DateTimeField(null=True)
        ),
    ]
