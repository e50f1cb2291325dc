"""Second factors, channels of people, directories, Slack, and subscriptions with the arguments of calls.

The mail that people had chosen becomes a channel. The two tables of mail stay for the release before, which mails
nobody any more.
"""

import uuid
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models.functions import Lower

ID = ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False))
NUMBER = (
    "id",
    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
)
SIGNED = [("signature", models.TextField()), ("key_id", models.TextField())]
PERSON: dict[str, Any] = {"on_delete": models.PROTECT, "to": settings.AUTH_USER_MODEL}
ENDS_ONCE = """
CREATE FUNCTION approvals_secondfactor_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too. A counter that fell would let a code be used again.
    IF (NEW.id, NEW.person_id, NEW.kind, NEW.name, NEW.secret, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.person_id, OLD.kind, OLD.name, OLD.secret, OLD.created_at)
        OR NEW.counter < OLD.counter
        OR (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at) THEN
        RAISE EXCEPTION 'second factors end once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_secondfactor_ends_once
    BEFORE UPDATE OR DELETE ON approvals_secondfactor
    FOR EACH ROW EXECUTE FUNCTION approvals_secondfactor_keep();
"""

NOTICES = """
CREATE FUNCTION approvals_approval_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO approvals_outboxmessage (id, kind, destination, lane, subject, next_at)
    SELECT gen_random_uuid(), 'notice', NEW.id::text, 'notices', 'notice ' || NEW.id, clock_timestamp()
    WHERE EXISTS (SELECT FROM approvals_noticechannel);
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_approval_noticed AFTER INSERT ON approvals_approval
    FOR EACH ROW WHEN (NEW.status = 'pending') EXECUTE FUNCTION approvals_approval_notify();
"""

MAIL = """
INSERT INTO approvals_noticechannel (id, person_id, kind, address, from_risk, runs, since, confirmed_at, problem)
SELECT gen_random_uuid(), person_id, 'mail', jsonb_build_object('address', address),
    CASE about WHEN 'all' THEN 'low' WHEN 'high' THEN 'high' ELSE '' END, runs, since, confirmed_at, problem
FROM approvals_mailpreference;
INSERT INTO approvals_sentnotice (channel_id, about, at, message)
SELECT c.id, s.about, s.at, gen_random_uuid() FROM approvals_sentmail s
JOIN auth_user u ON u.username = s.person JOIN approvals_noticechannel c ON c.person_id = u.id;
INSERT INTO approvals_outboxmessage (id, kind, destination, lane, subject, next_at)
SELECT gen_random_uuid(), 'channel', id::text, 'mail', 'channel ' || id, clock_timestamp()
FROM approvals_noticechannel;
ALTER TABLE approvals_mailpreference DROP CONSTRAINT approvals_mailpreference_person_id_4c6a68ef_fk_auth_user_id;
UPDATE approvals_mailpreference SET about = 'off', runs = false;
"""

EVENTS = """
CREATE OR REPLACE FUNCTION signoff_tell(
    event text, run uuid, event_at timestamptz, tells_at timestamptz, data jsonb)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO approvals_outboxmessage
        (id, kind, destination, lane, subject, body, occurred_at, next_at, gives_up_at)
    SELECT gen_random_uuid(), event, s.id::text, 'subscription ' || s.id, s.id || ' ' || run,
        json_build_object('type', event,
            'timestamp', to_char(event_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'data', CASE WHEN s.with_arguments THEN data ELSE data - 'arguments' END)::text,
        event_at, tells_at, event_at + interval '3 days'
    FROM approvals_subscription s
    WHERE s.paused_at IS NULL AND event = ANY (s.events)
        AND s.agent IN ('', data ->> 'agent') AND s.tool IN ('', data ->> 'tool')
        AND (s.risk = '' OR array_position(ARRAY['low', 'medium', 'high'], s.risk)
            <= array_position(ARRAY['low', 'medium', 'high'], data ->> 'risk'))
$$;

CREATE OR REPLACE FUNCTION approvals_approval_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    event text := 'approval.' || CASE WHEN NEW.status IN ('expired', 'cancelled') THEN NEW.status
        WHEN NEW.status = 'pending' THEN 'requested' ELSE 'decided' END;
    proposed text := coalesce(NEW.edited, NEW.args);
    arguments jsonb;
BEGIN
    IF NOT EXISTS (SELECT FROM approvals_subscription) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.effective_at IS NOT NULL THEN
        -- The decision was undone or cancelled before it counted.
        DELETE FROM approvals_outboxmessage WHERE kind = 'approval.decided' AND ended_at IS NULL AND attempts = 0
            AND subject IN (SELECT s.id || ' ' || NEW.run_id FROM approvals_subscription s)
            AND body::json #>> '{data,approval}' = NEW.id::text;
    END IF;
    IF NEW.tool <> '' AND octet_length(proposed) <= 32768
            AND EXISTS (SELECT FROM approvals_subscription s WHERE s.with_arguments) THEN
        -- Sealed values, as `runtime.keyring.sealing` writes them. In a text their quotation marks are escaped.
        arguments := regexp_replace(proposed, '\\{"\\$secret": *"[^"]*"\\}', '"••••"', 'g');
    END IF;
    IF TG_OP = 'INSERT' OR NEW.status <> 'pending' THEN
        PERFORM signoff_tell(event, NEW.run_id, coalesce(NEW.decided_at, NEW.created_at),
            greatest(NEW.effective_at, clock_timestamp()), jsonb_build_object(
                'approval', NEW.id, 'run', NEW.run_id, 'agent', NEW.path ->> 0, 'status', NEW.status,
                'kind', NEW.kind, 'tool', NEW.tool, 'risk', NEW.risk, 'title', NEW.sentence,
                'arguments', arguments));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER approvals_approval_requested AFTER INSERT ON approvals_approval
    FOR EACH ROW EXECUTE FUNCTION approvals_approval_tell();
CREATE OR REPLACE TRIGGER approvals_approval_closed AFTER UPDATE OF status ON approvals_approval
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION approvals_approval_tell();

CREATE OR REPLACE FUNCTION approvals_run_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM signoff_tell('run.' || CASE WHEN TG_OP = 'INSERT' THEN 'started'
            WHEN NEW.status = 'suspended' THEN 'waiting' ELSE NEW.status END,
        NEW.id, coalesce(NEW.ended_at, clock_timestamp()), clock_timestamp(), jsonb_build_object(
            'run', NEW.id, 'agent', NEW.agent, 'status', NEW.status));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_run_started AFTER INSERT ON runtime_run
    FOR EACH ROW WHEN (NEW.ended_at IS NULL) EXECUTE FUNCTION approvals_run_tell();
CREATE OR REPLACE TRIGGER approvals_run_changed AFTER UPDATE OF status ON runtime_run
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status
        AND NEW.status IN ('waiting', 'suspended', 'completed', 'failed', 'cancelled', 'quarantined'))
    EXECUTE FUNCTION approvals_run_tell();
"""

TOKENS = """
CREATE FUNCTION approvals_directorytoken_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.public_id, NEW.directory, NEW.secret_hash, NEW."by", NEW.created_at, NEW.expires_at)
        IS DISTINCT FROM
        (OLD.public_id, OLD.directory, OLD.secret_hash, OLD."by", OLD.created_at, OLD.expires_at)
        OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) THEN
        RAISE EXCEPTION 'tokens of directories are revoked once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_directorytoken_stays_revoked
    BEFORE UPDATE OR DELETE ON approvals_directorytoken
    FOR EACH ROW EXECUTE FUNCTION approvals_directorytoken_keep();
"""

ACTS = """
CREATE TRIGGER approvals_mappingact_append_only
    BEFORE UPDATE OR DELETE ON approvals_mappingact
    FOR EACH ROW EXECUTE FUNCTION runtime_refuse_change();
"""

UPDATES = """
CREATE FUNCTION approvals_approval_update_slack() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO approvals_outboxmessage
        (id, kind, destination, lane, subject, body, occurred_at, next_at, gives_up_at)
    SELECT gen_random_uuid(), 'slack.update', destination, lane, subject, body,
        clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day'
    FROM approvals_outboxmessage WHERE destination = 'slack ' || NEW.id AND kind = 'slack.post';
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_approval_slack AFTER UPDATE ON approvals_approval FOR EACH ROW
    WHEN ((OLD.status, OLD.voted, OLD.expires_at) IS DISTINCT FROM (NEW.status, NEW.voted, NEW.expires_at))
    EXECUTE FUNCTION approvals_approval_update_slack();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0001_first_release"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SecondFactor",
            fields=[
                *SIGNED,
                ID,
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("secret", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("counter", models.BigIntegerField(default=0)),
                ("used_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("person", models.ForeignKey(related_name="second_factors", **PERSON)),
            ],
        ),
        migrations.AddField("vote", "authenticated", models.JSONField(null=True)),
        migrations.CreateModel(
            name="NoticeChannel",
            fields=[
                ID,
                ("person", models.ForeignKey(related_name="channels", **PERSON)),
                ("kind", models.TextField()),
                ("address", models.JSONField()),
                ("from_risk", models.TextField(db_default="", default="")),
                ("runs", models.BooleanField(db_default=False, default=False)),
                ("shows", models.TextField(db_default="title", default="title")),
                ("since", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(db_default="", default="")),
            ],
        ),
        migrations.CreateModel(
            name="NoticeTimes",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        primary_key=True, serialize=False, related_name="notice_times", **PERSON
                    ),
                ),
                ("zone", models.TextField()),
                ("quiet_from", models.TimeField(null=True)),
                ("quiet_until", models.TimeField(null=True)),
                ("urgent_at_night", models.BooleanField(db_default=False, default=False)),
                (
                    "digest",
                    ArrayField(
                        base_field=models.SmallIntegerField(),
                        db_default=[],
                        default=list,
                        size=None,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="SentNotice",
            fields=[
                NUMBER,
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="sent_notices",
                        to="approvals.noticechannel",
                    ),
                ),
                ("about", models.UUIDField()),
                ("event", models.TextField(db_default="", default="")),
                ("at", models.DateTimeField()),
                ("message", models.UUIDField()),
            ],
            options={
                "indexes": [models.Index(fields=["channel", "at"], name="sent_notice_at")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("channel", "about", "event"), name="sent_notice_once"
                    )
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(name="SentMail"),
                migrations.DeleteModel(name="MailPreference"),
            ]
        ),
        migrations.AddField(
            "subscription", "with_arguments", models.BooleanField(db_default=False, default=False)
        ),
        migrations.AddField(
            "outboxmessage", "answer_body", models.TextField(db_default="", default="")
        ),
        migrations.CreateModel(
            name="DirectoryToken",
            fields=[
                *SIGNED,
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                ("directory", models.TextField()),
                ("secret_hash", models.TextField()),
                ("by", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="DirectoryEntry",
            fields=[
                *SIGNED,
                ID,
                ("directory", models.TextField()),
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("external_id", models.TextField()),
                ("version", models.IntegerField()),
                ("attributes", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("person", models.OneToOneField(null=True, related_name="entry", **PERSON)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("directory"),
                        models.F("kind"),
                        Lower("name"),
                        name="directory_name",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("external_id", ""), _negated=True),
                        fields=("directory", "kind", "external_id"),
                        name="directory_external_id",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MappingAct",
            fields=[
                NUMBER,
                *SIGNED,
                ("seq", models.IntegerField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("source", models.TextField()),
                ("act", models.TextField()),
                ("value", models.TextField()),
                ("gives", models.TextField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("source", "seq"), name="mapping_act_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="SlackRequest",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.RunSQL(ENDS_ONCE),
        migrations.RunSQL(TOKENS),
        migrations.RunSQL(ACTS),
        migrations.RunSQL(EVENTS),
        migrations.RunSQL(NOTICES),
        migrations.RunSQL(UPDATES),
        migrations.RunSQL(MAIL),
    ]
