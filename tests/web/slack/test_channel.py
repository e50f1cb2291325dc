"""A connected person is told in Slack as on their other channels, and as much as the installation allows."""

from typing import Any

import pytest
from django.test import Client

from approvals.models import NoticeChannel
from approvals.notices import due, slack_posts
from approvals.outbox import messages
from approvals.outbox.messages import Sender
from tests.support.office import Office, reseal
from tests.support.pages import has
from tests.support.seeds import PASSWORD, Cast
from tests.support.slack_server import Slack, pass_time
from tests.web.slack.test_linking import link


def look() -> None:
    """Have each open message looked at now, until none adds another."""
    for _ in range(3):
        pass_time()
        sender = Sender({**due.KINDS, **slack_posts.KINDS})
        while (message := messages.claim()) is not None:
            sender.send_one(message)


def last(slack: Slack) -> str:
    return str(list(slack.posts.values())[-1])


def test_connecting_adds_the_channel_and_requests_come_there(
    slack: Slack, bea: Client, cast: Cast, office: Office
) -> None:
    bea.post(link(slack), {"password": PASSWORD})
    look()
    has(slack.text, "Slack is on")
    slack.posts.clear()
    request = office.request(office.start())
    reseal([request], risk="high")
    look()
    has(slack.text, "High risk", "security_level: 3", f"/a/{request.pk}/")
    assert slack.verdicts == ["open"]
    look()
    assert len(slack.posts) == 1


@pytest.mark.parametrize(
    ("limit", "sentence", "arguments"),
    [("nothing", False, False), ("title", True, False), ("arguments", True, True)],
)
def test_a_message_shows_as_much_as_the_installation_allows(
    limit: str,
    sentence: bool,
    arguments: bool,
    slack: Slack,
    linked: None,
    office: Office,
    settings: Any,
) -> None:
    settings.SIGNOFF_NOTICES = {"slack": limit}
    request = office.request(office.start())
    slack_posts.post_request("bea", request.pk, "")
    look()
    text = last(slack)
    assert ("Set the privileges" in text) == sentence
    assert ("security_level" in text) == arguments
    assert ("'approve'" in text) == arguments


def test_without_the_channel_nothing_is_posted(slack: Slack, linked: None, office: Office) -> None:
    request = office.request(office.start())
    slack_posts.post_request("bea", request.pk, "")
    NoticeChannel.objects.all().delete()
    look()
    assert slack.posts == {}
