"""The outbox with the webhooks of instances, extended deadlines, and subscriptions to events with their triggers.

A trigger writes in the statement of the event itself, whichever it is, and costs a step nothing that is no event.
"""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

EVENTS = """
CREATE FUNCTION signoff_tell(event text, run uuid, event_at timestamptz, tells_at timestamptz, data jsonb)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO approvals_outboxmessage
        (id, kind, destination, lane, subject, body, occurred_at, next_at, gives_up_at)
    SELECT gen_random_uuid(), event, s.id::text, 'subscription ' || s.id, s.id || ' ' || run,
        json_build_object('type', event,
            'timestamp', to_char(event_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'data', data)::text,
        event_at, tells_at, event_at + interval '3 days'
    FROM approvals_subscription s
    WHERE s.paused_at IS NULL AND event = ANY (s.events)
        AND s.agent IN ('', data ->> 'agent') AND s.tool IN ('', data ->> 'tool')
        AND (s.risk = '' OR array_position(ARRAY['low', 'medium', 'high'], s.risk)
            <= array_position(ARRAY['low', 'medium', 'high'], data ->> 'risk'))
$$;

CREATE FUNCTION approvals_approval_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    event text := 'approval.' || CASE WHEN NEW.status IN ('expired', 'cancelled') THEN NEW.status
        WHEN NEW.status = 'pending' THEN 'requested' ELSE 'decided' END;
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
    IF TG_OP = 'INSERT' OR NEW.status <> 'pending' THEN
        PERFORM signoff_tell(event, NEW.run_id, coalesce(NEW.decided_at, NEW.created_at),
            greatest(NEW.effective_at, clock_timestamp()), jsonb_build_object(
                'approval', NEW.id, 'run', NEW.run_id, 'agent', NEW.path ->> 0, 'status', NEW.status,
                'kind', NEW.kind, 'tool', NEW.tool, 'risk', NEW.risk, 'title', NEW.sentence));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_approval_requested AFTER INSERT ON approvals_approval
    FOR EACH ROW EXECUTE FUNCTION approvals_approval_tell();
CREATE TRIGGER approvals_approval_closed AFTER UPDATE OF status ON approvals_approval
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION approvals_approval_tell();

CREATE FUNCTION approvals_run_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM signoff_tell('run.' || CASE WHEN TG_OP = 'INSERT' THEN 'started'
            WHEN NEW.status = 'suspended' THEN 'waiting' ELSE NEW.status END,
        NEW.id, coalesce(NEW.ended_at, clock_timestamp()), clock_timestamp(), jsonb_build_object(
            'run', NEW.id, 'agent', NEW.agent, 'status', NEW.status));
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_run_started AFTER INSERT ON runtime_run
    FOR EACH ROW WHEN (NEW.ended_at IS NULL) EXECUTE FUNCTION approvals_run_tell();
CREATE TRIGGER approvals_run_changed AFTER UPDATE OF status ON runtime_run
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status
        AND NEW.status IN ('waiting', 'suspended', 'completed', 'failed', 'cancelled'))
    EXECUTE FUNCTION approvals_run_tell();
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0003_instances"), ("runtime", "0004_run_idle")]

    operations = [
        migrations.CreateModel(
            name="InstanceWebhook",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="webhook",
                        serialize=False,
                        to="approvals.instance",
                    ),
                ),
                ("url", models.TextField()),
                ("registration_id", models.TextField()),
                ("secret", models.JSONField()),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                ("id", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("kind", models.TextField()),
                ("destination", models.TextField()),
                ("lane", models.TextField()),
                ("subject", models.TextField()),
                ("body", models.TextField(null=True)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("next_at", models.DateTimeField()),
                ("gives_up_at", models.DateTimeField(null=True)),
                ("leased_until", models.DateTimeField(null=True)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("answer", models.TextField(db_default="", default="")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "ending",
                    models.TextField(
                        choices=[
                            ("delivered", "Delivered"),
                            ("given up", "Given Up"),
                            ("dropped", "Dropped"),
                        ],
                        null=True,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["lane", "next_at"],
                        name="outbox_lane",
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["subject", "number"],
                        name="outbox_subject",
                    ),
                    models.Index(fields=["destination", "-number"], name="outbox_destination"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", False)),
                        fields=["ended_at"],
                        name="outbox_ended",
                    ),
                ],
            },
        ),
        migrations.AddField(
            model_name="instance",
            name="last_request_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="framework",
            field=models.TextField(db_default=""),
        ),
        migrations.AddField("approval", "first_expires_at", models.DateTimeField(null=True)),
        migrations.AddField("approval", "extensions", models.TextField(null=True)),
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True), ("leased_until__isnull", False)),
                fields=["lane", "leased_until"],
                name="outbox_leased",
            ),
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("url", models.TextField()),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                ("agent", models.TextField(db_default="", default="")),
                ("tool", models.TextField(db_default="", default="")),
                ("risk", models.TextField(db_default="", default="")),
                ("secret", models.JSONField()),
                ("former_secret", models.JSONField(null=True)),
                ("former_until", models.DateTimeField(null=True)),
                ("created_by", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("paused_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.RunSQL(EVENTS),
    ]
