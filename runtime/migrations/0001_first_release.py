"""The tables of the engine. The journal is made in SQL, because it is partitioned by month of the run's id.

Run ids are UUIDv7 (RFC 9562): they begin with the time in milliseconds, so a range of ids is a range
of time and a month of runs is one partition. The DEFAULT partition takes what no month claims.
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

FUNCTIONS = """
CREATE FUNCTION signoff_uuid7(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    -- 48 bits of milliseconds laid over a random UUIDv4, then the version nibble: 0100 becomes 0111.
    SELECT encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

CREATE FUNCTION signoff_uuid7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3)
        || decode('00000000000000000000', 'hex'), 'hex')::uuid
$$;

CREATE FUNCTION signoff_make_partitions(ahead integer) RETURNS void LANGUAGE plpgsql AS $$
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
        PERFORM pg_advisory_xact_lock(hashtext('signoff_make_partitions'));
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        first := signoff_uuid7_floor(month);
        after := signoff_uuid7_floor((month AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC');
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

-- For roles that do not own the journal
CREATE FUNCTION signoff_drop_partition(name text) RETURNS boolean LANGUAGE plpgsql AS $$
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

CREATE FUNCTION runtime_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
"""

JOURNAL = """
CREATE TABLE runtime_journalentry (
    run_id uuid NOT NULL,
    position bigint NOT NULL,
    body text NOT NULL,
    mac text NOT NULL,
    key_id text NOT NULL,
    commit_id uuid NOT NULL,
    packed bytea,
    PRIMARY KEY (run_id, position)
) PARTITION BY RANGE (run_id);
"""

# lz4 takes a fifth of the time of pglz. The Postgres of `make up` was built without it.
COMPRESSION = """
DO $$
DECLARE
    column_of record;
BEGIN
    IF EXISTS (
        SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)
    ) THEN
        FOR column_of IN
            SELECT * FROM (VALUES
                ('runtime_run', 'input'),
                ('runtime_run', 'output'),
                ('runtime_storedcontinuation', 'body'),
                ('runtime_compactionbase', 'body'),
                ('runtime_storedblob', 'body'),
                ('runtime_journalentry', 'body')
            ) AS columns (relation, name)
        LOOP
            EXECUTE format(
                'ALTER TABLE %I ALTER COLUMN %I SET COMPRESSION lz4', column_of.relation, column_of.name);
        END LOOP;
    END IF;
END $$
"""

# They inherit the columns' compression, so they come after it.
PARTITIONS = """
CREATE TABLE runtime_journalentry_default PARTITION OF runtime_journalentry DEFAULT;
SELECT signoff_make_partitions(2);
"""

# Runs without a business key, which are most, are not in its index.
BUSINESS_KEY = """
ALTER TABLE runtime_run ADD CONSTRAINT run_business_key EXCLUDE USING btree
    (agent WITH =, requester WITH =, business_key WITH =) WHERE (business_key IS NOT NULL)
"""

# A signal is found by its run, which has few.
NO_SIGNAL_KEY = "ALTER TABLE runtime_signal DROP CONSTRAINT runtime_signal_pkey"

APPEND_ONLY = """
CREATE TRIGGER runtime_usedapproval_append_only
    BEFORE UPDATE OR DELETE ON runtime_usedapproval
    FOR EACH ROW EXECUTE FUNCTION runtime_refuse_change();

CREATE FUNCTION runtime_lateoutcome_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM runtime_run WHERE id = OLD.run_id AND removed_at IS NOT NULL) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of % are append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER runtime_lateoutcome_append_only
    BEFORE UPDATE OR DELETE ON runtime_lateoutcome
    FOR EACH ROW EXECUTE FUNCTION runtime_lateoutcome_refuse();

-- The sweeper deletes old events, and the times of schedules stay.
CREATE TRIGGER runtime_occurrence_keeps_times
    BEFORE DELETE ON runtime_occurrence
    FOR EACH ROW WHEN (OLD.kind <> 'event') EXECUTE FUNCTION runtime_refuse_change();
"""


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("runtime", "0001_initial"),
        ("runtime", "0002_daily_counts"),
        ("runtime", "0003_idle_since"),
        ("runtime", "0004_run_idle"),
    ]
    dependencies = []

    operations = [
        migrations.RunSQL(FUNCTIONS),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("agent", models.TextField()),
                ("requester", models.TextField()),
                ("origin", models.JSONField(db_default=[])),
                ("token", models.TextField(null=True)),
                ("business_key", models.TextField(null=True)),
                ("thread", models.TextField(null=True)),
                ("input", models.TextField()),
                ("output", models.TextField(null=True)),
                ("reason", models.TextField(null=True)),
                ("awaits", models.TextField(null=True)),
                ("limited", models.JSONField(null=True)),
                ("awaits_store", models.TextField(null=True)),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("waiting", "waiting"),
                            ("suspended", "suspended"),
                            ("paused", "paused"),
                            ("cancelling", "cancelling"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("exported", "exported"),
                            ("quarantined", "quarantined"),
                        ],
                        default="queued",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                ("position", models.BigIntegerField(db_default=0)),
                ("head", models.TextField(db_default="")),
                ("base", models.BigIntegerField(db_default=0)),
                ("due_at", models.DateTimeField(null=True)),
                ("epoch", models.BigIntegerField(db_default=0)),
                ("owner", models.UUIDField(null=True)),
                ("mailbox", models.BigIntegerField(db_default=0)),
                ("unheard", models.IntegerField(db_default=0)),
                ("removed_at", models.DateTimeField(null=True)),
                ("archived_at", models.DateTimeField(null=True)),
                ("legal_hold", models.JSONField(null=True)),
                (
                    "idle_since",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("worker", models.UUIDField(null=True)),
                ("losses", models.IntegerField(db_default=0)),
                ("isolated", models.BooleanField(db_default=False)),
                ("pushed", models.BooleanField(db_default=False)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="run_due",
                    ),
                    models.Index(
                        condition=models.Q(("isolated", True)),
                        fields=["due_at", "id"],
                        name="run_suspected",
                    ),
                    models.Index(fields=["requester", "-id"], name="run_requester"),
                    models.Index(
                        condition=models.Q(
                            ("ended_at__isnull", False), ("removed_at__isnull", True)
                        ),
                        fields=["ended_at"],
                        name="run_to_remove",
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["idle_since"],
                        name="run_idle",
                    ),
                    models.Index(
                        condition=models.Q(("thread__isnull", False)),
                        fields=["thread", "-id"],
                        name="run_thread",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JournalEntry",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "position",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("run_id", models.UUIDField()),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("commit_id", models.UUIDField()),
                ("packed", models.BinaryField(null=True)),
            ],
            options={
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Pruning",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("head", models.TextField()),
                ("at", models.DateTimeField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("state", models.TextField(null=True)),
                ("state_mac", models.TextField(null=True)),
                ("state_key_id", models.TextField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="StoredContinuation",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="CompactionBase",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("position", models.BigIntegerField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="StoredBlob",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("body", models.TextField()),
                ("place", models.TextField(null=True)),
                ("size", models.BigIntegerField(null=True)),
                (
                    "used_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("source", models.UUIDField(null=True)),
                ("is_summary", models.BooleanField(db_default=False)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("source__isnull", False)),
                        fields=["source"],
                        name="stored_blob_source",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DroppedObject",
            fields=[
                ("place", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="ArchivedRun",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("place", models.TextField(null=True, unique=True)),
                ("state", models.TextField()),
                ("digest", models.TextField(db_default="")),
                ("size", models.BigIntegerField(db_default=0)),
                (
                    "contents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), db_default=[], size=None
                    ),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["contents"], name="archived_run_contents"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ArchivedEntries",
            fields=[
                ("place", models.TextField(primary_key=True, serialize=False)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runtime.run",
                    ),
                ),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField(null=True)),
                ("digest", models.TextField(db_default="")),
                ("size", models.BigIntegerField(db_default=0)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="BlobReference",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "blob_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="runtime.run",
                    ),
                ),
                (
                    "blob",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="runtime.storedblob"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="gates",
                        to="runtime.run",
                    ),
                ),
                ("kind", models.TextField()),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("tool", models.TextField()),
                ("path", models.JSONField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("open", "Open"),
                            ("decided", "Decided"),
                            ("effective", "Effective"),
                            ("closed", "Closed"),
                        ],
                        default="open",
                    ),
                ),
                (
                    "opened_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("decided_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="UsedApproval",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "gate",
                        "attempt",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("gate", models.UUIDField()),
                ("attempt", models.IntegerField()),
                ("run_id", models.UUIDField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="LateOutcome",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        "call",
                        "attempt",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runtime.run",
                    ),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("attempt", models.IntegerField()),
                ("started_at", models.DateTimeField()),
                ("worker", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="StoredPartialReply",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runtime.run",
                    ),
                ),
                ("frame", models.TextField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="Signal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="runtime.run",
                    ),
                ),
                ("kind", models.TextField()),
                ("body", models.TextField()),
                (
                    "effective_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WaitingCall",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        "call",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="runtime.run",
                    ),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("event", models.TextField()),
                ("match", models.JSONField()),
                ("until", models.DateTimeField()),
            ],
            options={
                "indexes": [models.Index(fields=["event", "run"], name="waiting_call_event")],
            },
        ),
        migrations.CreateModel(
            name="ExternalEvent",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("digest", models.TextField()),
                ("waits", models.IntegerField()),
                ("sent_by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="external_event_at")],
            },
        ),
        migrations.CreateModel(
            name="KillSwitch",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("agent", models.TextField()),
                ("stopped_by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("lifted_by", models.TextField(null=True)),
                ("lifted_token", models.TextField(null=True)),
                ("lifted_at", models.DateTimeField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("lifted_at__isnull", True)),
                        fields=("agent",),
                        name="kill_switch_active",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SweeperLoop",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("done_at", models.DateTimeField()),
                ("took", models.FloatField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="LostLease",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="runtime.run",
                    ),
                ),
                ("worker", models.UUIDField(null=True)),
                ("host", models.TextField(null=True)),
                ("process", models.IntegerField(null=True)),
                ("position", models.BigIntegerField()),
                ("isolated", models.BooleanField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["worker"], name="lost_lease_worker")],
            },
        ),
        migrations.CreateModel(
            name="WorkerProcess",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("host", models.TextField()),
                ("process", models.IntegerField()),
                ("agents", models.JSONField(db_default={})),
                (
                    "started_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "beat_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "lease_until",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("isolated", models.BooleanField(db_default=False)),
                ("hung", models.BooleanField(db_default=False)),
                ("measures", models.JSONField(db_default={})),
                (
                    "runs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), db_default=[], size=None
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="ReceivedEvent",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.TextField(unique=True)),
                ("source", models.TextField()),
                ("event_id", models.TextField()),
                ("name", models.TextField()),
                ("subject", models.TextField()),
                ("data", models.TextField()),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="received_event_at")],
            },
        ),
        migrations.CreateModel(
            name="Trigger",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("agent", models.TextField()),
                ("owner", models.TextField()),
                ("event", models.TextField(db_default="")),
                ("state", models.TextField(db_default="active")),
                ("problem", models.TextField(db_default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="trigger_due",
                    ),
                    models.Index(
                        condition=models.Q(("state", "active")),
                        fields=["event"],
                        name="trigger_event",
                    ),
                    models.Index(fields=["owner"], name="trigger_owner"),
                ],
            },
        ),
        migrations.CreateModel(
            name="TriggerAct",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "seq",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("number", models.BigIntegerField()),
                ("kind", models.TextField()),
                ("at", models.DateTimeField()),
                ("state", models.TextField()),
                ("key", models.TextField(db_default="")),
                ("run", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(db_default="")),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["new", "waiting", "started"])),
                        fields=["trigger", "number"],
                        name="occurrence_open",
                    ),
                    models.Index(
                        condition=models.Q(("state", "started")),
                        fields=["trigger", "key"],
                        name="occurrence_running",
                    ),
                    models.Index(
                        condition=models.Q(("started_at__isnull", False)),
                        fields=["trigger", "started_at"],
                        name="occurrence_started",
                    ),
                    models.Index(
                        condition=models.Q(("state", "failed")),
                        fields=["trigger", "-number"],
                        name="occurrence_failed",
                    ),
                    models.Index(
                        condition=models.Q(("run__isnull", False)),
                        fields=["run"],
                        name="occurrence_run",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "event")), fields=["at"], name="occurrence_at"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TriggerWebhook",
            fields=[
                ("trigger", models.UUIDField(primary_key=True, serialize=False)),
                ("address", models.TextField(unique=True)),
                ("refused", models.IntegerField(db_default=0)),
                ("refused_at", models.DateTimeField(null=True)),
                ("refused_why", models.TextField(db_default="")),
            ],
        ),
        migrations.CreateModel(
            name="TriggerSource",
            fields=[
                ("trigger", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("place", models.TextField()),
                ("looked_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(db_default="")),
                ("cursor", models.TextField(db_default="")),
                ("not_before", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="WatchedFile",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "folder",
                        "name",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("folder", models.TextField()),
                ("name", models.TextField()),
                ("stamp", models.TextField()),
                ("seen_at", models.DateTimeField()),
                ("done", models.BooleanField(db_default=False)),
                ("digest", models.TextField(db_default="")),
                ("gone_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("gone_at__isnull", True)),
                        fields=["trigger"],
                        name="watched_file_there",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PromptTrial",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("prompt", models.TextField()),
                ("number", models.IntegerField()),
                ("wanted", models.IntegerField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "runs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), db_default=[], size=None
                    ),
                ),
                ("result", models.TextField(db_default="[]")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("prompt",),
                        name="prompt_trial_at_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RunReplay",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("run", models.UUIDField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("host", models.TextField(db_default="")),
                ("process", models.IntegerField(null=True)),
                ("compared", models.BigIntegerField(db_default=0)),
                ("entries", models.BigIntegerField(db_default=0)),
                ("result", models.TextField(db_default="")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "indexes": [models.Index(fields=["run"], name="run_replay_of")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("run",),
                        name="run_replay_at_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="EditPreview",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("run", models.UUIDField()),
                ("gate", models.UUIDField()),
                ("by", models.TextField()),
                ("args", models.TextField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("result", models.TextField(db_default="")),
                ("mac", models.TextField(db_default="")),
                ("key_id", models.TextField(db_default="")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "indexes": [models.Index(fields=["run"], name="edit_preview_of")],
                "constraints": [
                    models.UniqueConstraint(fields=("gate", "by"), name="edit_preview_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyRuns",
            fields=[
                ("day", models.DateField(primary_key=True, serialize=False)),
                ("statuses", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="RunUsage",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("position", models.BigIntegerField()),
                ("replies", models.BigIntegerField()),
                ("unpriced", models.BigIntegerField()),
                ("input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("micros", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("agent", models.TextField()),
                ("model", models.TextField()),
                ("requester", models.TextField()),
                ("replies", models.BigIntegerField()),
                ("unpriced", models.BigIntegerField()),
                ("input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("micros", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "agent", "model", "requester"), name="daily_usage_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UncountedRun",
            fields=[("run_id", models.UUIDField(primary_key=True, serialize=False))],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(BUSINESS_KEY)],
            state_operations=[
                migrations.AddConstraint(
                    model_name="run",
                    constraint=models.UniqueConstraint(
                        fields=("agent", "requester", "business_key"), name="run_business_key"
                    ),
                ),
            ],
        ),
        migrations.RunSQL(JOURNAL),
        migrations.RunSQL(COMPRESSION),
        migrations.RunSQL(PARTITIONS),
        migrations.RunSQL(NO_SIGNAL_KEY),
        migrations.RunSQL(APPEND_ONLY),
    ]
