"""Fixtures: a Slack workspace, in which Bea's user is connected to her account."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from pytest_django import Settings

from approvals.models import Approval, OutboxMessage
from approvals.notices import channels
from approvals.notices.slack_posts import post_request
from approvals.people import sign_in
from tests.support.office import Office
from tests.support.slack_server import TEAM, USERS, Slack, send_due, slack_server


@pytest.fixture
def slack(settings: Settings) -> Iterator[Slack]:
    with slack_server() as slack:
        settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
        settings.SIGNOFF_SLACK = slack.app
        settings.SIGNOFF_NOTICES = {"slack": "arguments"}
        yield slack


def connect(person: str) -> None:
    sign_in.connect(person, sign_in.make_slack_identity(TEAM, USERS[person], person))
    channels.add_slack(person)
    OutboxMessage.objects.all().delete()  # the first notice, with which each channel begins


@pytest.fixture
def linked(slack: Slack, office: Office) -> None:
    connect("bea")


@pytest.fixture
def asked_bea(linked: None, office: Office, suspended: UUID) -> Approval:
    """A request of medium risk that was posted to Bea."""
    request = office.request(suspended)
    post_request("bea", request.pk, "")
    send_due()
    return request
