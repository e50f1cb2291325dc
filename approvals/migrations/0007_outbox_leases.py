"""An index of the messages that senders have leased, so that a claim need not read all that wait."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("approvals", "0006_extensions"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="outboxmessage",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True), ("leased_until__isnull", False)),
                fields=["lane", "leased_until"],
                name="outbox_leased",
            ),
        ),
    ]
