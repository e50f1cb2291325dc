"""Allowances: signed acts with the uses between them, and the requests of the calls that they passed."""

from typing import ClassVar

from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_allowanceact_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'acts on allowances are added, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_allowanceact_append_only
    BEFORE UPDATE OR DELETE ON approvals_allowanceact
    FOR EACH ROW EXECUTE FUNCTION approvals_allowanceact_refuse();
"""
DROP = """
DROP TRIGGER approvals_allowanceact_append_only ON approvals_allowanceact;
DROP FUNCTION approvals_allowanceact_refuse();
"""
ACTS = [
    ("proposed", "Proposed"),
    ("confirmed", "Confirmed"),
    ("used", "Used"),
    ("revoked", "Revoked"),
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0028_teamwork")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="AllowanceAct",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allowance", models.UUIDField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField(choices=ACTS)),
                ("tool", models.TextField(db_default="", default="")),
                ("ends_at", models.DateTimeField(null=True)),
                ("terms", models.TextField(db_default="", default="")),
                ("proposed_by", models.TextField(null=True)),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("reason", models.TextField(db_default="", default="")),
                ("run", models.UUIDField(null=True)),
                ("frame", models.TextField(null=True)),
                ("call", models.TextField(null=True)),
                ("request", models.UUIDField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["allowance", "seq"], name="allowance_order"),
                    models.UniqueConstraint(
                        condition=models.Q(act="used"),
                        fields=["run", "frame", "call"],
                        name="allowance_used_once",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(act="confirmed"),
                        fields=["tool", "ends_at"],
                        name="allowance_tool",
                    ),
                ],
            },
        ),
        migrations.AddField("request", "allowance", models.UUIDField(null=True)),
        migrations.AddField("request", "allowance_use", models.IntegerField(null=True)),
        migrations.RunSQL(CREATE, DROP),
    ]
