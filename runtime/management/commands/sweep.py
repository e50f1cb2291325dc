"""`manage.py sweep`: the sweeper process."""

import signal
import threading
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand

from runtime.core.documents import continuations
from runtime.triggers import firing
from runtime.triggers.sources import SOURCES
from runtime.triggers.sources.reading import read_all
from runtime.upkeep import startup, sweeper

LOOPS = (
    sweeper.Loop(name="schedules", duty=firing.fire_schedules, seconds=1.0),
    sweeper.Loop(name="triggers", duty=firing.fire_events, seconds=1.0),
    *(
        sweeper.Loop(name=source.loop, duty=partial(read_all, source), seconds=source.seconds)
        for source in SOURCES.values()
    ),
)


class Command(BaseCommand):
    """Runs a sweeper until it is stopped."""

    help = (
        "Dispatch due runs, start runs of schedules and triggers, read their sources, and maintain partitions,"
        " retention, archive and ledger."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database()
        continuations.prepare()
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        sweeper.run(stop, *LOOPS)
