"""Comments on requests, claims, hand-overs, and who has a request open. Comments only grow, except by retention."""

from typing import Any, ClassVar
from uuid import uuid4

import django.db.models.deletion
from django.db import migrations, models

CREATE = """
CREATE FUNCTION approvals_comment_unchanged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'comments on requests are never changed';
END
$$;
CREATE TRIGGER approvals_comment_unchanged BEFORE UPDATE ON approvals_comment
    FOR EACH ROW EXECUTE FUNCTION approvals_comment_unchanged();
"""
DROP = """
DROP TRIGGER approvals_comment_unchanged ON approvals_comment;
DROP FUNCTION approvals_comment_unchanged();
"""


def _only(name: str) -> Any:
    """Return the key of a table with at most one row for each request."""
    return models.OneToOneField(
        on_delete=django.db.models.deletion.PROTECT,
        primary_key=True,
        related_name=name,
        serialize=False,
        to="approvals.request",
    )


def _many(name: str) -> Any:
    return models.ForeignKey(
        on_delete=django.db.models.deletion.PROTECT, related_name=name, to="approvals.request"
    )


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0027_revisions")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", models.UUIDField(default=uuid4, primary_key=True, serialize=False)),
                ("request", _many("comments")),
                ("person", models.TextField()),
                ("text", models.TextField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="Claim",
            fields=[
                ("request", _only("claim")),
                ("person", models.TextField()),
                ("at", models.DateTimeField()),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Handover",
            fields=[
                ("request", _only("handover")),
                ("person", models.TextField()),
                ("by", models.TextField()),
                ("note", models.TextField()),
                ("at", models.DateTimeField()),
            ],
            options={"indexes": [models.Index(fields=["person"], name="handover_person")]},
        ),
        migrations.CreateModel(
            name="Viewer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("request", _many("viewers")),
                ("person", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("request", "person"), name="viewer_once")
                ]
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
