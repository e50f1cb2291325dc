"""The tables of directories that provision people with SCIM, and the triggers that keep what must not change."""

import uuid

import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models

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


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("approvals", "0007_webhook_arguments"),
    ]

    operations = [
        migrations.CreateModel(
            name="DirectoryToken",
            fields=[
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                ("directory", models.TextField()),
                ("secret_hash", models.TextField()),
                ("by", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={"abstract": False},
        ),
        migrations.CreateModel(
            name="DirectoryEntry",
            fields=[
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("directory", models.TextField()),
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("external_id", models.TextField()),
                ("version", models.IntegerField()),
                ("attributes", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                (
                    "person",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entry",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("directory"),
                        models.F("kind"),
                        django.db.models.functions.text.Lower("name"),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                ("seq", models.IntegerField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("source", models.TextField()),
                (
                    "act",
                    models.TextField(
                        choices=[
                            ("proposed", "Proposed"),
                            ("confirmed", "Confirmed"),
                            ("withdrawn", "Withdrawn"),
                        ]
                    ),
                ),
                ("value", models.TextField()),
                ("gives", models.TextField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("source", "seq"), name="mapping_act_once"),
                ],
            },
        ),
        migrations.RunSQL(TOKENS),
        migrations.RunSQL(ACTS),
    ]
