"""What Slack sent and was used, and the updates of messages in Slack, which a trigger adds with the change."""

from django.db import migrations, models

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
    dependencies = [("approvals", "0008_directories")]

    operations = [
        migrations.CreateModel(
            name="SlackRequest",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.RunSQL(UPDATES),
    ]
