"""The tables of agents outside that ask for approvals, and the triggers that keep what must not change."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

INSTANCES = """
CREATE FUNCTION approvals_instance_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.id, NEW.owner_id, NEW.secret_hash, NEW.created_at, NEW.idempotency_key)
        IS DISTINCT FROM (OLD.id, OLD.owner_id, OLD.secret_hash, OLD.created_at, OLD.idempotency_key) THEN
        RAISE EXCEPTION 'instances are ended, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS DISTINCT FROM OLD.deleted_at THEN
        RAISE EXCEPTION 'ended instances stay ended' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_instance_stays_ended
    BEFORE UPDATE OR DELETE ON approvals_instance
    FOR EACH ROW EXECUTE FUNCTION approvals_instance_keep();
"""

USES = """
CREATE FUNCTION approvals_approvaluse_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run, NEW.instance_id, NEW.idempotency_key, NEW.used_at)
        IS DISTINCT FROM (OLD.run, OLD.instance_id, OLD.idempotency_key, OLD.used_at) THEN
        RAISE EXCEPTION 'uses of approvals are not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.outcome IS NOT NULL AND (NEW.outcome, NEW.reported_at)
        IS DISTINCT FROM (OLD.outcome, OLD.reported_at) THEN
        RAISE EXCEPTION 'outcomes are reported once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_approvaluse_once
    BEFORE UPDATE OR DELETE ON approvals_approvaluse
    FOR EACH ROW EXECUTE FUNCTION approvals_approvaluse_keep();
"""


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("approvals", "0002_daily_counts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Instance",
            fields=[
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("secret_hash", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("idempotency_key", models.TextField()),
                ("fingerprint", models.TextField()),
                ("sealed", models.JSONField(null=True)),
                ("updates", models.JSONField(db_default={})),
                ("deleted_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="instances",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "idempotency_key"), name="instance_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ApprovalUse",
            fields=[
                ("run", models.UUIDField(primary_key=True, serialize=False)),
                ("idempotency_key", models.TextField()),
                ("used_at", models.DateTimeField()),
                ("outcome", models.TextField(null=True)),
                ("note", models.TextField(null=True)),
                ("reported_at", models.DateTimeField(null=True)),
                (
                    "instance",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="uses",
                        to="approvals.instance",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(INSTANCES, "DROP FUNCTION approvals_instance_keep CASCADE"),
        migrations.RunSQL(USES, "DROP FUNCTION approvals_approvaluse_keep CASCADE"),
    ]
