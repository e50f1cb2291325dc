"""kill -9 of a sweeper that sends a notice: no person misses one, and a second mail has the Message-ID of the first."""

from pathlib import Path
from typing import Any

import pytest

from approvals.models import OutboxMessage, SentNotice
from tests.support import seeds
from tests.support.mail import Sink, sink  # noqa: F401 - pytest finds the fixture by its name
from tests.support.notices import hears, look, send_notices
from tests.system.fault_injection.harness import points
from tests.system.fault_injection.harness.loop import die_at

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("by_hand", "forks")]


@pytest.mark.parametrize("point", sorted(points.MESSAGES))
def test_a_killed_sweeper_loses_no_notice(
    point: str,
    sink: Sink,  # noqa: F811
    settings: Any,
    tmp_path: Path,
) -> None:
    seeds.person("bea", *seeds.GROUPS["bea"])
    hears("bea", "bea@example.com")
    look()
    sink.mails.clear()
    seeds.pending()
    names = ("EMAIL_BACKEND", "EMAIL_HOST", "EMAIL_PORT", "DEFAULT_FROM_EMAIL")
    mail = {name: getattr(settings, name) for name in names}
    die_at(point, tmp_path, send_notices, **mail)
    is_sent = point == "sent:message:0"
    assert len(sink.mails) == is_sent
    send_notices()
    assert len(sink.mails) == is_sent  # it is under the lease of the dead
    look()
    assert [mail["Subject"] for mail in sink.mails] == ["1 request waits for you, urgent"] * (
        1 + is_sent
    )
    assert len({mail["Message-ID"] for mail in sink.mails}) == SentNotice.objects.count() == 1
    assert OutboxMessage.objects.filter(ended_at=None).count() == 1  # the look at the channel
