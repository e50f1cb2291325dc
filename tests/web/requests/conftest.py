"""A request of Ada's run."""

from uuid import UUID

import pytest

from approvals.models import Request
from tests.support.office import Office


@pytest.fixture
def asked(office: Office, suspended: UUID) -> Request:
    """The request for which Ada's run waits."""
    return office.request(suspended)


@pytest.fixture
def doubt(office: Office) -> Request:
    """The request about a call in doubt: the welcome mail of Ada's run."""
    return office.in_doubt_request(office.in_doubt())
