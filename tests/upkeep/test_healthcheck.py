"""The health check of one process of this machine."""

import socket
import threading
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from pytest_django.live_server_helper import LiveServer

from runtime.management.commands import healthcheck
from runtime.models import Worker
from runtime.queries import workers
from tests.support.people import until
from tests.upkeep.test_sweeper import sweeping

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_of_another_machine_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    Worker.objects.create(id=uuid4(), host="elsewhere", process=1)
    with pytest.raises(CommandError, match="no worker of this host beats"):
        call_command("healthcheck", "worker")
    Worker.objects.create(id=uuid4(), host=socket.gethostname(), process=1)
    call_command("healthcheck", "worker")
    assert capsys.readouterr().out == "worker is alive\n"


def test_a_sweeper_is_alive_while_it_sweeps() -> None:
    with pytest.raises(CommandError, match="no sweeper of this host sweeps"):
        call_command("healthcheck", "sweeper")
    with sweeping(threading.Event()):
        until(lambda: workers.sweeper_sweeps(healthcheck._WITHIN) or None, "the sweeper to sweep")
        call_command("healthcheck", "sweeper")


def test_the_web_is_alive_when_it_is_ready(live_server: LiveServer) -> None:
    place = live_server.url.removeprefix("http://")
    with pytest.raises(CommandError, match=r'web is not ready: .*"worker": false'):
        call_command("healthcheck", "web", at=place)
    Worker.objects.create(id=uuid4(), host="elsewhere", process=1)
    call_command("healthcheck", "web", at=place)
    with pytest.raises(CommandError, match=r"web does not answer at 127\.0\.0\.1:1"):
        call_command("healthcheck", "web", at="127.0.0.1:1")
