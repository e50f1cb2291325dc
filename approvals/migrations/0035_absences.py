"""People name a deputy while they are away; a vote and a decision say in whose place they were made."""

from typing import ClassVar

from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_absence_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'acts about absences are append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER approvals_absence_append_only BEFORE UPDATE OR DELETE ON approvals_absence
    FOR EACH ROW EXECUTE FUNCTION approvals_absence_append_only();
"""
DROP = """
DROP TRIGGER approvals_absence_append_only ON approvals_absence;
DROP FUNCTION approvals_absence_append_only();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0034_question")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Absence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.TextField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField(choices=[("set", "Set"), ("ended", "Ended")])),
                ("deputy", models.TextField()),
                ("starts", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("username", "seq"), name="absence_order")
                ],
                "indexes": [models.Index(fields=["deputy"], name="absence_deputy")],
            },
        ),
        migrations.AddField("request", "decided_for", models.TextField(null=True)),
        migrations.AddField("request", "voted_for", models.JSONField(db_default=[])),
        migrations.AddField("vote", "for_person", models.TextField(null=True)),
        migrations.RunSQL(CREATE, DROP),
    ]
