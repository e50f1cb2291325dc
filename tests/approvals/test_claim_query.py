"""What a claim has read saves the query before a gate opens."""

from typing import Any

import pytest

from approvals import audit
from approvals.decisions import open_requests
from tests.support.office import Office


def test_a_gate_follows_the_audit_row_that_the_claim_has_read(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: Any) -> Any:
        raise AssertionError("Postgres was asked")

    monkeypatch.setattr(open_requests, "last_audit_row", ask)
    run = office.start()
    assert office.approve(run).status == "completed"
    assert audit.verify(run) == 2
