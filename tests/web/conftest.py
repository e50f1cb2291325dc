"""Fixtures: runs started and suspended by the engine, with scripted agents."""

from uuid import UUID

import pytest

from approvals.models import Approval
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.pages import log_in
from tests.support.seeds import Cast, object_of
from tests.support.seeds import published as publish
from tests.web.matrix import places

__all__ = ["places"]  # the fixture with everything that the matrix names

# Each person with a browser, and those with a token of every scope
ada, bea, cyril, admin = (
    pytest.fixture(lambda cast, name=name: log_in(getattr(cast, name)))
    for name in ("ada", "bea", "cyril", "admin")
)
ada_api, bea_api, admin_api = (
    pytest.fixture(lambda cast, name=name: Caller(getattr(cast, name)))
    for name in ("ada", "bea", "admin")
)


@pytest.fixture
def published(cast: Cast) -> None:
    """Publish hr_onboarding in the catalogue, as a worker does."""
    kinds = {"full_name": "string", "username": "string", "security_level": "integer"}
    schema = object_of(**{name: {"type": kind} for name, kind in kinds.items()})
    publish(input_schema=schema, tools=[], subagents=[], steps=None)


@pytest.fixture
def asked(office: Office, suspended: UUID) -> Approval:
    """The request for which Ada's run waits."""
    return office.request(suspended)


@pytest.fixture
def doubt(office: Office) -> Approval:
    """The request about a call in doubt: the welcome mail of Ada's run."""
    return office.in_doubt_request(office.in_doubt())
