"""Tokens have a name and an end, links set a password once, times have a zone, and views may be of runs."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# The signed columns of a token and of a link stay as they are; so do the times at which they ended.
KEEP = """
CREATE OR REPLACE FUNCTION approvals_token_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.public_id, NEW.owner_id, NEW.secret_hash, NEW.scopes, NEW.created_at, NEW.name, NEW.expires_at)
        IS DISTINCT FROM (OLD.public_id, OLD.owner_id, OLD.secret_hash, OLD.scopes, OLD.created_at, OLD.name,
            OLD.expires_at) THEN
        RAISE EXCEPTION 'tokens are revoked, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at THEN
        RAISE EXCEPTION 'revoked tokens stay revoked' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION approvals_passwordlink_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.public_id, NEW.person_id, NEW.secret_hash, NEW."by", NEW.created_at, NEW.expires_at)
        IS DISTINCT FROM (OLD.public_id, OLD.person_id, OLD.secret_hash, OLD."by", OLD.created_at, OLD.expires_at)
        OR (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at) THEN
        RAISE EXCEPTION 'password links end once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_passwordlink_ends_once
    BEFORE UPDATE OR DELETE ON approvals_passwordlink
    FOR EACH ROW EXECUTE FUNCTION approvals_passwordlink_keep();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("approvals", "0037_versionwithdrawal"),
    ]

    operations: ClassVar = [
        migrations.AddField("token", "name", models.TextField(default="", db_default="")),
        migrations.AddField("token", "expires_at", models.DateTimeField(null=True)),
        migrations.CreateModel(
            name="PasswordLink",
            fields=[
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                ("secret_hash", models.TextField()),
                ("by", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="password_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TimePreference",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="time_preference",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("zone", models.TextField()),
                ("clock", models.TextField()),
            ],
        ),
        migrations.AddField(
            "savedview", "page", models.TextField(default="inbox", db_default="inbox")
        ),
        migrations.RunSQL(
            KEEP,
            "DROP TRIGGER approvals_passwordlink_ends_once ON approvals_passwordlink;"
            " DROP FUNCTION approvals_passwordlink_keep();",
        ),
    ]
