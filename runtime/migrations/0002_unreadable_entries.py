"""Indexes the entries that no page can show, which are none as a rule: else a decision looks at the whole journal."""

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

INDEX = "runtime_journalentry_unreadable"
# The condition of `reads.journal.build_unreadable_sql`. In a release with another schema a new index must follow.
ROWS = """(run_id, position)
    WHERE (packed IS NULL OR body <> '') AND left(body, 16) !~ '^\\{"schema": ?(1),'
"""


def build_partitioned_index(apps: Any, editor: BaseDatabaseSchemaEditor) -> None:
    """Build the index of each partition while entries are written, then that of the table, which has them all."""
    with editor.connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX {INDEX} ON ONLY runtime_journalentry {ROWS}")
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'runtime_journalentry'::regclass"
        )
        for (partition,) in cursor.fetchall():
            index = f"{partition}_unreadable"
            cursor.execute(f"CREATE INDEX CONCURRENTLY {index} ON {partition} {ROWS}")
            cursor.execute(f"ALTER INDEX {INDEX} ATTACH PARTITION {index}")


class Migration(migrations.Migration):
    atomic = False  # the indexes are created concurrently

    dependencies = [("runtime", "0001_first_release")]

    operations = [migrations.RunPython(build_partitioned_index, migrations.RunPython.noop)]
