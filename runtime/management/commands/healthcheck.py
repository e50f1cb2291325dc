"""`manage.py healthcheck web|worker|isolated|sweeper`: tell a supervisor whether this host's process works."""

import http.client
import socket
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.reads import workers

_WITHIN = timedelta(seconds=10)


class Command(BaseCommand):
    """Reports whether a process of this host works."""

    help = (
        "End with 0 if a web process (/readyz), worker or sweeper of this host works, else with 1."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("process", choices=("web", "worker", "isolated", "sweeper"))
        parser.add_argument("--at", default="127.0.0.1:8000", help="where web listens")

    def handle(self, *args: Any, **options: Any) -> None:
        process: str = options["process"]
        if process == "web":
            problem = _read_problem(options["at"])
        elif process in ("worker", "isolated"):
            alone = process == "isolated"
            alive = workers.has_live_worker(_WITHIN, socket.gethostname(), isolated=alone)
            problem = (
                ""
                if alive
                else f"no {process} of this host beats".replace("isolated", "isolated worker")
            )
        else:
            problem = "" if workers.has_live_sweeper(_WITHIN) else "no sweeper of this host sweeps"
        if problem:
            raise CommandError(problem)
        self.stdout.write(f"{process} is alive")


def _read_problem(address: str) -> str:
    """Return the problem that /readyz reports; empty if the web process is ready."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read(1000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as problem:
        return f"web does not answer at {address}: {problem}"
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else f"web is not ready: {body}"
