"""Policies: a request may need several people, whose votes are rows, and versions of the policy are signed acts."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_policyact_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'acts on policies are added, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_policyact_append_only
    BEFORE UPDATE OR DELETE ON approvals_policyact
    FOR EACH ROW EXECUTE FUNCTION approvals_policyact_refuse();
"""
DROP = """
DROP TRIGGER approvals_policyact_append_only ON approvals_policyact;
DROP FUNCTION approvals_policyact_refuse();
"""
ACTS = [
    ("proposed", "Proposed"),
    ("scheduled", "Scheduled"),
    ("confirmed", "Confirmed"),
    ("withdrawn", "Withdrawn"),
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0023_saved_views")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="PolicyAct",
            fields=[
                ("seq", models.IntegerField(primary_key=True, serialize=False)),
                ("act", models.TextField(choices=ACTS)),
                ("number", models.IntegerField()),
                ("text", models.TextField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
        ),
        migrations.AddField("request", "rule", models.TextField(null=True)),
        migrations.AddField("request", "voted", models.JSONField(db_default=[])),
        migrations.AddField("request", "open_to", models.JSONField(null=True)),
        migrations.CreateModel(
            name="Vote",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="votes",
                        to="approvals.request",
                    ),
                ),
                ("person", models.TextField()),
                ("stage", models.IntegerField()),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("statement", models.TextField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["request", "person"], name="vote_once")
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
