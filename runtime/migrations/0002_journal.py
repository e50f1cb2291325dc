"""The journal, partitioned by month of the run's id, and the functions that make ids and partitions.

Run ids are UUIDv7 (RFC 9562): they begin with the time in milliseconds, so a range of ids is a range
of time and a month of runs is one partition. The DEFAULT partition takes what no month claims.
"""

from django.db import migrations

UUID7 = """
CREATE FUNCTION abeyance_uuid7(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    -- 48 bits of milliseconds laid over a random UUIDv4, then the version nibble: 0100 becomes 0111.
    SELECT encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

CREATE FUNCTION abeyance_uuid7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3)
        || decode('00000000000000000000', 'hex'), 'hex')::uuid
$$;
"""

JOURNAL = """
CREATE TABLE runtime_journalentry (
    run_id uuid NOT NULL,
    position bigint NOT NULL,
    body text NOT NULL,
    mac text NOT NULL,
    key_id text NOT NULL,
    commit_id uuid NOT NULL,
    PRIMARY KEY (run_id, position)
) PARTITION BY RANGE (run_id);

CREATE TABLE runtime_journalentry_default PARTITION OF runtime_journalentry DEFAULT;
"""

PARTITIONS = """
CREATE FUNCTION abeyance_make_partitions(ahead integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    month timestamptz;
    name text;
BEGIN
    FOR step IN 0..ahead LOOP
        month := (date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC')
            + step * interval '1 month') AT TIME ZONE 'UTC';
        name := 'runtime_journalentry_' || to_char(month AT TIME ZONE 'UTC', 'YYYY_MM');
        IF to_regclass(name) IS NULL THEN
            PERFORM pg_advisory_xact_lock(hashtext('abeyance_make_partitions'));
            EXECUTE format(
                'CREATE TABLE IF NOT EXISTS %I PARTITION OF runtime_journalentry'
                ' FOR VALUES FROM (%L) TO (%L)',
                name,
                abeyance_uuid7_floor(month),
                abeyance_uuid7_floor((month AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC'));
        END IF;
    END LOOP;
END $$;

SELECT abeyance_make_partitions(2);
"""


class Migration(migrations.Migration):
    dependencies = [("runtime", "0001_initial")]

    operations = [
        migrations.RunSQL(
            UUID7,
            "DROP FUNCTION abeyance_uuid7_floor(timestamptz); DROP FUNCTION abeyance_uuid7(timestamptz)",
        ),
        migrations.RunSQL(JOURNAL, "DROP TABLE runtime_journalentry"),
        migrations.RunSQL(PARTITIONS, "DROP FUNCTION abeyance_make_partitions(integer)"),
    ]
