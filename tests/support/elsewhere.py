"""Another installation, to which an exported run moves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings

from runtime.keyring import files, purposes
from runtime.ports import wiring
from runtime.store import pool

Move = Callable[[UUID], None]
_TABLES = (
    "storedcontinuation",
    "compactionbase",
    "pruning",
    "archivedentries",
    "gate",
    "signal",
    "blobreference",
    "journalentry",
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Move]:
    """Make this another installation, with keys of its own, that does not know the run and lists our key."""

    def move(run: UUID) -> None:
        with pool.open_own() as own:
            for table in _TABLES:
                own.execute(f"DELETE FROM runtime_{table} WHERE run_id = %s", (run,))
            own.execute("DELETE FROM runtime_run WHERE id = %s", (run,))
            own.execute("DELETE FROM runtime_storedblob")
        ours = Path(settings.KEYS_DIR) / "exports.public"
        (tmp_path / "ours.public").write_text(ours.read_text())
        monkeypatch.setattr(settings, "IMPORT_KEYS", (tmp_path / "ours.public",))
        monkeypatch.setattr(settings, "KEYS_DIR", tmp_path / "keys")
        monkeypatch.setattr(wiring.resolve_catalogue(), "is_published", lambda agent: True)
        files._read_ring.cache_clear()
        for purpose in purposes.PURPOSES:
            files.ensure(purpose)

    yield move
    files._read_ring.cache_clear()
