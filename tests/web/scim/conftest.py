"""A directory."""

import pytest

from tests.web.scim.provisioner import Provisioner


@pytest.fixture
def acme(db: None) -> Provisioner:
    return Provisioner()
