"""An index that finds a person's pending requests without their closed ones, in place of one of all their requests."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

STATISTICS = """
CREATE STATISTICS IF NOT EXISTS request_own (mcv) ON requester, status FROM approvals_request;
ANALYZE approvals_request
"""


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("approvals", "0038_people")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "request", models.Index(fields=["requester", "status"], name="request_own")
        ),
        RemoveIndexConcurrently("request", "request_requester"),
        migrations.RunSQL(STATISTICS, migrations.RunSQL.noop),
    ]
