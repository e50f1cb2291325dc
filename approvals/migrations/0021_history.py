"""The history of decisions: what became of decided calls, how a decision was sent, and the indexes of its filters."""

from typing import ClassVar

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # indexes are created concurrently

    dependencies: ClassVar = [
        ("approvals", "0020_preview"),
        ("runtime", "0029_words"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Outcome",
            fields=[
                (
                    "request",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="outcome",
                        serialize=False,
                        to="approvals.request",
                    ),
                ),
                ("run_id", models.UUIDField()),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("outcome", models.TextField()),
                ("position", models.BigIntegerField()),
                ("decided_at", models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name="request",
            name="channel",
            field=models.TextField(null=True),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)),
                fields=["decided_by", "-decided_at", "-id"],
                name="request_history_person",
            ),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)),
                fields=["requester", "-decided_at", "-id"],
                name="request_history_by",
            ),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)),
                fields=["tool", "-decided_at", "-id"],
                name="request_history_tool",
            ),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                models.Func(
                    models.F("path"),
                    output_field=models.TextField(),
                    template="(%(expressions)s ->> 0)",
                ),
                models.OrderBy(models.F("decided_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("decided_at__isnull", False)),
                name="request_history_root",
            ),
        ),
        AddIndexConcurrently(
            model_name="request",
            index=models.Index(
                models.Func(
                    models.F("path"),
                    models.F("tool"),
                    arg_joiner=" ->> CASE WHEN ",
                    output_field=models.TextField(),
                    template="(%(expressions)s = '' THEN -1 ELSE -2 END)",
                ),
                models.OrderBy(models.F("decided_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("decided_at__isnull", False)),
                name="request_history_agent",
            ),
        ),
        AddIndexConcurrently(
            model_name="outcome",
            index=models.Index(
                fields=["outcome", "-decided_at", "-request"], name="outcome_history"
            ),
        ),
        AddIndexConcurrently(
            model_name="outcome",
            index=models.Index(
                condition=models.Q(("outcome", "in_doubt")),
                fields=["run_id"],
                name="outcome_in_doubt",
            ),
        ),
    ]
