"""Indexes of one's own requests that are pending; similar approvals are found by the history of a tool."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # an index is created concurrently

    dependencies = [("approvals", "0002_people")]

    operations = [
        AddIndexConcurrently(
            model_name="approval",
            index=models.Index(
                fields=["requester"],
                name="approval_own_pending",
                condition=models.Q(status="pending"),
            ),
        ),
        RemoveIndexConcurrently("approval", "approval_own"),
        RemoveIndexConcurrently("approval", "approval_similar"),
    ]
