"""The tester of the SCIM libraries provisions a directory over HTTP."""

import pytest
from httpx2 import Client
from pytest_django.live_server_helper import LiveServer
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

from approvals.people import directories


@pytest.mark.django_db(transaction=True)
def test_the_tester_of_the_protocol_passes(live_server: LiveServer) -> None:
    _, token = directories.create_token("acme", days=1, actor=None)
    headers = {"Authorization": f"Bearer {token}"}
    with Client(base_url=f"{live_server.url}/scim/v2", headers=headers, timeout=30) as http:
        results = check_server(SyncSCIMClient(http))
    faults = [
        (result.title, result.resource_type, result.reason)
        for result in results
        if result.status in (Status.ERROR, Status.CRITICAL)
    ]
    assert faults == []
    assert len([result for result in results if result.status is Status.SUCCESS]) > 40
