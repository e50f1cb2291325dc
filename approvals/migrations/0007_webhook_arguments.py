"""Subscriptions with the arguments of calls, the event of a quarantined run, and the answers to messages."""

from django.db import migrations, models

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

DROP TRIGGER approvals_run_changed ON runtime_run;
CREATE TRIGGER approvals_run_changed AFTER UPDATE OF status ON runtime_run
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status
        AND NEW.status IN ('waiting', 'suspended', 'completed', 'failed', 'cancelled', 'quarantined'))
    EXECUTE FUNCTION approvals_run_tell();
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0006_notices")]

    operations = [
        migrations.AddField(
            "subscription", "with_arguments", models.BooleanField(db_default=False, default=False)
        ),
        migrations.AddField(
            "outboxmessage", "answer_body", models.TextField(db_default="", default="")
        ),
        migrations.RunSQL(EVENTS),
    ]
