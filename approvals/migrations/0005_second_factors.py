"""Second factors, and how the person of a vote proved who they are."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

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


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0004_outbox"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SecondFactor",
            fields=[
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("app", "App"),
                            ("passkey", "Passkey"),
                            ("recovery code", "Recovery Code"),
                        ]
                    ),
                ),
                ("name", models.TextField()),
                ("secret", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("counter", models.BigIntegerField(default=0)),
                ("used_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="second_factors",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"abstract": False},
        ),
        migrations.AddField("vote", "authenticated", models.JSONField(null=True)),
        migrations.RunSQL(ENDS_ONCE),
    ]
