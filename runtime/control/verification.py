"""Verifies a stored run: every MAC, the replay of its journal, and every copy of its content.

Postgres serves all reads but those of ledger and audit from one snapshot, so a worker may advance the run meanwhile.
Approvals verify the audit; rows that are added meanwhile do not disturb that.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.control import findings
from runtime.control.findings import Finding
from runtime.control.verified_journal import read_row
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered
from runtime.store import archived_runs, pool
from runtime.store.tables import pruning
from runtime.store.tables.pruning import UNPRUNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The findings of one verified run; a run without findings is consistent.

    Entries of a run that goes on were removed up to `removed`, at `removed_at`; `removed` is 0 for a whole journal.
    """

    run: UUID
    status: str
    position: int
    findings: tuple[Finding, ...]
    removed: int = 0
    removed_at: datetime | None = None

    @property
    def is_consistent(self) -> bool:
        """Return whether there are no findings."""
        return not self.findings


def verify(run: UUID) -> Verification:
    """Verify everything that is stored of a run. Raises NoSuchRun."""
    with pool.pooled() as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = read_row(connection, run)
        differences = tuple(findings.compare(connection, row))
        mark = UNPRUNED
        if not row.erased:
            # Where the journal begins, also in a run's file; the first entry if that does not verify.
            with suppress(Tampered, KeyMissing, ObjectStoreDown):
                archived_run = (
                    archived_runs.read_for_page(connection, row.id) if row.archived else None
                )
                mark = archived_run.mark if archived_run else pruning.read(connection, row.id)
    return Verification(
        run=run,
        status=row.status,
        position=row.position,
        findings=(*differences, *findings.ledger_findings(run), *findings.audit_findings(row)),
        removed=mark.position,
        removed_at=mark.at,
    )


def list_runs(*, live: bool) -> list[UUID]:
    """List the runs, oldest first; with `live` only those that have not ended."""
    condition = "WHERE ended_at IS NULL" if live else ""
    with pool.pooled() as connection:
        rows = connection.execute(f"SELECT id FROM runtime_run {condition} ORDER BY id")
        return [row[0] for row in rows.fetchall()]
