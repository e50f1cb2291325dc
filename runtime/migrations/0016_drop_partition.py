"""A function that drops an empty month of the journal, for roles that do not own the journal."""

from typing import ClassVar

from django.db import migrations

CREATE = """
CREATE FUNCTION abeyance_drop_partition(name text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    is_empty boolean;
BEGIN
    IF name !~ '^runtime_journalentry_[0-9]{4}_[0-9]{2}$' OR name >= 'runtime_journalentry_'
        || to_char((clock_timestamp() - interval '1 day') AT TIME ZONE 'UTC', 'YYYY_MM') THEN
        RAISE EXCEPTION '% is not a month of the journal that is over', name;
    END IF;
    -- What is written to the journal waits behind this lock, so it is held for a look only.
    LOCK TABLE runtime_journalentry IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I)', name) INTO is_empty;
    IF is_empty THEN
        EXECUTE format('DROP TABLE %I', name);
    END IF;
    RETURN is_empty;
END $$;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0015_worker_hung")]

    operations: ClassVar = [
        migrations.RunSQL(CREATE, "DROP FUNCTION abeyance_drop_partition(text)")
    ]
