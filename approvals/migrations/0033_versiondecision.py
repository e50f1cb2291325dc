"""A change of an agent is decided once for all its waiting runs: the signed decisions are only added."""

from typing import ClassVar

from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_versiondecision_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'decisions on versions are added, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_versiondecision_append_only
    BEFORE UPDATE OR DELETE ON approvals_versiondecision
    FOR EACH ROW EXECUTE FUNCTION approvals_versiondecision_refuse();
"""
DROP = """
DROP TRIGGER approvals_versiondecision_append_only ON approvals_versiondecision;
DROP FUNCTION approvals_versiondecision_refuse();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0032_expiry_indexes")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="VersionDecision",
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
                ("count", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["agent", "before", "after", "-id"], name="version_decision_pair"
                    )
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
