"""A decision on versions can be withdrawn, by rows that are only added. Unsigned hand-overs are adopted once."""

from typing import ClassVar

from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_versionwithdrawal_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'withdrawals are added, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_versionwithdrawal_append_only
    BEFORE UPDATE OR DELETE ON approvals_versionwithdrawal
    FOR EACH ROW EXECUTE FUNCTION approvals_versionwithdrawal_refuse();
"""
DROP = """
DROP TRIGGER approvals_versionwithdrawal_append_only ON approvals_versionwithdrawal;
DROP FUNCTION approvals_versionwithdrawal_refuse();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0036_handover_signed")]

    operations: ClassVar = [
        migrations.AddField(
            "versiondecision", "withdrawn", models.IntegerField(db_default=0, default=0)
        ),
        migrations.AddField("adoption", "handovers_at", models.DateTimeField(null=True)),
        migrations.CreateModel(
            name="VersionWithdrawal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("agent", models.TextField()),
                ("before", models.TextField()),
                ("after", models.TextField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["agent", "before", "after"], name="version_withdrawal_pair"
                    )
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
