"""Prompts: versions of the instructions of agents, as signed acts."""

from typing import ClassVar

from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_promptact_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'acts on prompts are added, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_promptact_append_only
    BEFORE UPDATE OR DELETE ON approvals_promptact
    FOR EACH ROW EXECUTE FUNCTION approvals_promptact_refuse();
"""
DROP = """
DROP TRIGGER approvals_promptact_append_only ON approvals_promptact;
DROP FUNCTION approvals_promptact_refuse();
"""
ACTS = [
    ("saved", "Saved"),
    ("labelled", "Labelled"),
    ("proposed", "Proposed"),
    ("scheduled", "Scheduled"),
    ("confirmed", "Confirmed"),
    ("withdrawn", "Withdrawn"),
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0040_high_risk")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="PromptAct",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.TextField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField(choices=ACTS)),
                ("number", models.IntegerField()),
                ("text", models.TextField()),
                ("note", models.TextField()),
                ("label", models.TextField()),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name", "seq"), name="prompt_act_once")
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
