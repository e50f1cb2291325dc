"""Fewer indexes of requests: the API lists them by id, and most calls are of their run's own agent."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models.lookups import Exact

from approvals.models import ASKING_AGENT, ROOT_AGENT


class Migration(migrations.Migration):
    atomic = False  # an index is created concurrently

    dependencies = [("approvals", "0003_pending_own")]

    operations = [
        AddIndexConcurrently(
            model_name="approval",
            index=models.Index(
                ASKING_AGENT,
                models.F("decided_at").desc(),
                models.F("id").desc(),
                name="approval_history_asking",
                condition=models.Q(decided_at__isnull=False)
                & ~models.Q(Exact(ASKING_AGENT, ROOT_AGENT)),
            ),
        ),
        RemoveIndexConcurrently("approval", "approval_history_agent"),
        RemoveIndexConcurrently("approval", "approval_order"),
    ]
