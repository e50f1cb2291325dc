"""Make a month of the journal although entries of it are in DEFAULT, without a lock on the journal."""

from typing import ClassVar

from django.db import migrations

PARTITIONS = """
CREATE OR REPLACE FUNCTION abeyance_make_partitions(ahead integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month timestamptz;
    name text;
    first uuid;
    after uuid;
BEGIN
    FOR step IN 0..ahead LOOP
        month := (date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC')
            + step * interval '1 month') AT TIME ZONE 'UTC';
        name := 'runtime_journalentry_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        PERFORM pg_advisory_xact_lock(hashtext('abeyance_make_partitions'));
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        first := abeyance_uuid7_floor(month);
        after := abeyance_uuid7_floor((month AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC');
        -- Only entries that no month claims wait for this lock. CREATE TABLE … PARTITION OF would hold up all.
        LOCK TABLE runtime_journalentry_default IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('CREATE TABLE %I (LIKE runtime_journalentry INCLUDING ALL)', name);
        EXECUTE format(
            'WITH moved AS (DELETE FROM runtime_journalentry_default'
            ' WHERE run_id >= %L AND run_id < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
            first, after, name);
        EXECUTE format(
            'ALTER TABLE runtime_journalentry ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            name, first, after);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0017_awaits")]

    operations: ClassVar = [migrations.RunSQL(PARTITIONS, migrations.RunSQL.noop)]
