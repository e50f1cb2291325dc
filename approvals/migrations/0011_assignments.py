"""Assignments of rights with their givers, and signatures of tokens."""

from typing import ClassVar

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_assignment_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'assignments are append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_assignment_append_only
    BEFORE UPDATE OR DELETE ON approvals_assignment
    FOR EACH ROW EXECUTE FUNCTION approvals_assignment_refuse();
"""

DROP = """
DROP TRIGGER approvals_assignment_append_only ON approvals_assignment;
DROP FUNCTION approvals_assignment_refuse();
"""

ACTS = [
    ("adopted", "Adopted"),
    ("given", "Given"),
    ("confirmed", "Confirmed"),
    ("changed", "Changed"),
    ("ended", "Ended"),
]


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("approvals", "0010_origin"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.AddField("token", "signature", models.TextField(null=True)),
        migrations.AddField("token", "key_id", models.TextField(null=True)),
        migrations.CreateModel(
            name="Adoption",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Assignment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.TextField()),
                ("what", models.TextField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField(choices=ACTS)),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("givers", models.JSONField()),
                ("given_at", models.DateTimeField()),
                ("needs_second", models.BooleanField()),
                ("confirmed_by", models.TextField(null=True)),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("digest", models.TextField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="assignments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("person", "what", "seq"), name="assignment_order"
                    )
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
