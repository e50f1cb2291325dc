"""Previews of edited arguments: a person wants to know what a call at a gate would do with arguments of their own.

The web process adds one, a worker computes it, and an approval with these arguments is bound to it. A person has one
for each gate: the next one takes its place. The worker signs the arguments together with the result, because a person
decides by it. It has contents of its run, so it is deleted with them.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from runtime.core.values.enums import CallPreview
from runtime.core.values.json_values import canonical
from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.store.pool import Connection
from runtime.store.tables.jobs.queue import Jobs

JOBS = Jobs(
    table="runtime_editpreview",
    lost="The worker ended before it had previewed the call. Preview it again.",
    of_erased="EXISTS (SELECT FROM runtime_run WHERE runtime_run.id = run AND removed_at IS NOT NULL)",
)
_LABEL = "preview of an edit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPreviewRow:
    """A preview of the call at a gate with the arguments `args`, a JSON text, for the person `by`.

    `agent` is that of the run. `state` is queued, running, done or failed; `problem` says why it ended without a
    `result`, which is a JSON text.
    """

    id: UUID
    run: UUID
    gate: UUID
    agent: str
    by: str
    args: str
    at: datetime
    state: str
    ended_at: datetime | None
    result: str
    mac: str
    key_id: str
    problem: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments; sealed ones are sealed."""
        found: dict[str, Any] = json.loads(self.args)
        return found

    def preview(self) -> CallPreview:
        """Return what the worker found out about exactly these arguments. Raise Tampered or KeyMissing."""
        seal = Seal(mac=self.mac, key_id=self.key_id)
        if not macs.verify(purposes.REQUESTS, seal, *_parts(self, self.result)):
            raise Tampered(f"the preview {self.id} does not verify")
        return CallPreview(**json.loads(self.result))


_COLUMNS = """
    id, run, gate, by, args, at, state, ended_at, result, mac, key_id, problem,
    (SELECT run.agent FROM runtime_run run WHERE run.id = runtime_editpreview.run) AS agent
"""


def replace(
    connection: Connection,
    preview: UUID,
    *,
    run: UUID,
    gate: UUID,
    by: str,
    args: dict[str, Any],
) -> None:
    """Add a queued preview in the place of the one that this person had at the gate."""
    connection.execute(
        """
        INSERT INTO runtime_editpreview (id, run, gate, by, args, state)
        VALUES (%(id)s, %(run)s, %(gate)s, %(by)s, %(args)s, 'queued')
        ON CONFLICT (gate, by) DO UPDATE SET id = excluded.id, args = excluded.args, state = 'queued',
            at = clock_timestamp(), started_at = NULL, ended_at = NULL, result = '', mac = '', key_id = '', problem = ''
        """,
        {"id": preview, "run": run, "gate": gate, "by": by, "args": json.dumps(args)},
    )


def find(connection: Connection, preview: UUID) -> EditPreviewRow | None:
    """Return a preview, None if there is none, or no more."""
    with connection.cursor(row_factory=class_row(EditPreviewRow)) as cursor:
        cursor.execute(
            f"SELECT {_COLUMNS} FROM runtime_editpreview WHERE id = %(id)s", {"id": preview}
        )
        return cursor.fetchone()


def save(connection: Connection, edit_preview: EditPreviewRow, preview: CallPreview) -> None:
    """Store what the worker found out, unless the run was erased, or the person wants another preview.

    The lock of the run's row orders this before or after an erasure, which deletes the preview.
    """
    result = json.dumps(asdict(preview))
    seal = macs.seal(purposes.REQUESTS, *_parts(edit_preview, result))
    connection.execute(
        """
        WITH kept AS MATERIALIZED (
            SELECT id FROM runtime_run WHERE id = %(run)s AND removed_at IS NULL FOR SHARE)
        UPDATE runtime_editpreview SET result = %(result)s, mac = %(mac)s, key_id = %(key)s
        WHERE id = %(id)s AND state = 'running' AND EXISTS (SELECT FROM kept)
        """,
        {
            "run": edit_preview.run,
            "id": edit_preview.id,
            "result": result,
            "mac": seal.mac,
            "key": seal.key_id,
        },
    )


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the previews of a run, inside the transaction that erases or archives it."""
    connection.execute("DELETE FROM runtime_editpreview WHERE run = %(run)s", {"run": run})


def _parts(edit_preview: EditPreviewRow, result: str) -> tuple[str, ...]:
    args = canonical(edit_preview.arguments).decode()
    return (_LABEL, str(edit_preview.id), str(edit_preview.gate), args, result)
