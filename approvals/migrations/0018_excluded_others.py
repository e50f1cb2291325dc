"""Requests that exclude only their requester, which are most, are left out of the index of excluded people.

Postgres writes the first page of such an index (GIN) anew at each insert, 159 bytes. The requester has an index too.
"""

from typing import ClassVar

from django.db import migrations

CREATE = """
CREATE INDEX CONCURRENTLY IF NOT EXISTS request_excluded_others ON approvals_request
    USING gin (excluded jsonb_path_ops)
    WHERE status = 'pending' AND ((excluded -> 1) IS NOT NULL OR (excluded ->> 0) <> requester)
"""


class Migration(migrations.Migration):
    atomic = False  # indexes are created and dropped concurrently

    dependencies: ClassVar = [("approvals", "0017_login_failures")]

    operations: ClassVar = [
        migrations.RunSQL(CREATE, migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "DROP INDEX CONCURRENTLY IF EXISTS request_excluded", migrations.RunSQL.noop
                )
            ],
            state_operations=[
                migrations.RemoveIndex(model_name="request", name="request_excluded")
            ],
        ),
    ]
