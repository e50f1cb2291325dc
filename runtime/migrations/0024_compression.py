"""What is long is compressed by lz4, where Postgres was built with it: it takes a fifth of the time of pglz.

Only values that are written from now on are compressed so, and every version reads both. The Postgres of `make up` has
no lz4 and stays as it is.
"""

from typing import ClassVar

from django.db import migrations

# Partitions are named one by one: what is said of their table holds for those that are made later.
COMPRESSION = """
DO $$
DECLARE
    place record;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)
    ) THEN
        RETURN;
    END IF;
    FOR place IN
        SELECT a.attrelid::regclass AS relation, a.attname AS name
        FROM pg_attribute a
        WHERE (a.attrelid, a.attname) IN (
            ('runtime_run'::regclass, 'input'),
            ('runtime_run'::regclass, 'output'),
            ('runtime_continuation'::regclass, 'body'),
            ('runtime_base'::regclass, 'body'),
            ('runtime_content'::regclass, 'body'),
            ('runtime_journalentry'::regclass, 'body')
        ) OR a.attname = 'body' AND a.attrelid IN (
            SELECT inhrelid FROM pg_inherits WHERE inhparent = 'runtime_journalentry'::regclass
        )
        ORDER BY a.attrelid, a.attname
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION lz4', place.relation, place.name);
    END LOOP;
END $$
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0023_loop")]

    operations: ClassVar = [migrations.RunSQL(COMPRESSION, migrations.RunSQL.noop)]
