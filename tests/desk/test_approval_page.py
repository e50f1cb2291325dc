"""The page of one approval, and the two decisions it can send."""

from uuid import UUID, uuid4

from django.test import Client

from approvals.models import Request
from runtime.core.continuation import CallState
from runtime.models import Gate, Run
from tests.desk.office import Office


def test_says_what_will_happen_with_every_argument_and_its_type(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = bea.get(f"/a/{office.request(suspended).id}/").content.decode()
    assert "Set the privileges of grace to 3" in page
    assert "integer · 1 to 5" in page
    assert "Medium risk" in page
    assert "not given" in page  # the argument the model left to its default
    print(page)
