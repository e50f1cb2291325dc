"""Channels of people, with the mail that they had chosen, and a trigger that adds a message with each request.

The two tables of mail stay for the release before, which mails nobody any more.
"""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

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


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0005_second_factors"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="NoticeChannel",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="channels",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
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
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="notice_times",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("zone", models.TextField()),
                ("quiet_from", models.TimeField(null=True)),
                ("quiet_until", models.TimeField(null=True)),
                ("urgent_at_night", models.BooleanField(db_default=False, default=False)),
                (
                    "digest",
                    django.contrib.postgres.fields.ArrayField(
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
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
        migrations.RunSQL(NOTICES),
        migrations.RunSQL(MAIL),
    ]
