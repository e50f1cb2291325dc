"""kill -9 of the sweeper that posts a request to Slack or updates its message: none is lost, at most one is doubled."""

import json
from pathlib import Path

import pytest

from approvals.models import Approval, OutboxMessage
from approvals.notices.slack_posts import post_request
from tests.support.office import BEA, Office, office  # noqa: F401 - a fixture
from tests.support.seeds import decide
from tests.support.slack_server import Slack, pass_time, send_due
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at
from tests.web.slack.conftest import linked, slack  # noqa: F401 - pytest finds fixtures by their names

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "forks")]


def texts_about(slack: Slack, approval: Approval) -> list[str]:  # noqa: F811
    texts = [json.dumps(post) for post in slack.posts.values()]
    return [text for text in texts if str(approval.pk) in text]


@pytest.mark.parametrize("point", sorted(points.MESSAGES))
def test_a_killed_sender_loses_no_message(
    point: str,
    slack: Slack,  # noqa: F811
    linked: None,  # noqa: F811
    office: Office,  # noqa: F811
    tmp_path: Path,
) -> None:
    requests = [office.request(office.start()) for _ in range(3)]
    for request in requests:
        post_request("bea", request.pk, "")
    changed = {"SIGNOFF_LOOPBACK_WEBHOOKS": True, "SIGNOFF_SLACK": slack.app}
    die_at(point, tmp_path, send_due, **changed)
    was_sent = point == "sent:message:0"
    assert len(slack.posts) == was_sent
    pass_time()
    send_due()
    numbers = sorted(len(texts_about(slack, request)) for request in requests)
    assert numbers == [1, 1, 1 + was_sent]
    again = tmp_path / "again"
    again.mkdir()
    for request in requests:
        decide(request, BEA)
    die_at(point, again, send_due, **changed)
    pass_time()
    send_due()
    for request in requests:
        assert any("Approved by bea" in text for text in texts_about(slack, request))
    endings = set(OutboxMessage.objects.exclude(kind="notice").values_list("ending", flat=True))
    assert endings == {"delivered"}
