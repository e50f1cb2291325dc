"""Has a worker preview the call at a gate with edited arguments, and reads such previews. Approvals checks who may."""

from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from runtime import broker
from runtime.control.transaction import atomic
from runtime.store import pool
from runtime.store.tables.jobs import edit_previews
from runtime.store.tables.jobs.edit_previews import EditPreviewRow


def ask(*, run: UUID, gate: UUID, by: str, args: dict[str, Any]) -> UUID:
    """Have a worker preview the call with these arguments. This replaces the person's last preview of it."""
    preview = uuid4()
    with atomic() as connection:
        edit_previews.replace(connection, preview, run=run, gate=gate, by=by, args=args)
        transaction.on_commit(lambda: broker.dispatch(preview, broker.PREVIEW))
    return preview


def find(*, gate: UUID, by: str, preview: UUID) -> EditPreviewRow | None:
    """Return this person's preview of the call at the gate, or None if it does not exist or was replaced."""
    with pool.in_transaction() as connection:
        stored = edit_previews.find(connection, preview)
    return stored if stored is not None and (stored.gate, stored.by) == (gate, by) else None
