"""`manage.py sweep`: the sweeper process."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from runtime.core.documents import codec
from runtime.triggers import firing
from runtime.triggers.events import firing as events_firing
from runtime.triggers.sources import buckets, folders, streams
from runtime.upkeep import startup, sweeper

SCHEDULES = sweeper.Loop(name="schedules", duty=firing.fire_due, seconds=1.0)
TRIGGERS = sweeper.Loop(name="triggers", duty=events_firing.fire_due, seconds=1.0)
FOLDERS = sweeper.Loop(name="folders", duty=folders.look, seconds=1.0)
STREAMS = sweeper.Loop(name="streams", duty=streams.look, seconds=1.0)
# Each look is a request to the store, which counts them.
BUCKETS = sweeper.Loop(name="buckets", duty=buckets.look, seconds=10.0)


class Command(BaseCommand):
    """Runs a sweeper until it is stopped."""

    help = (
        "Dispatch due runs, start runs of schedules and triggers, read their sources, and maintain partitions,"
        " retention, archive and ledger."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database()
        codec.prepare()
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        sweeper.run(stop, SCHEDULES, TRIGGERS, FOLDERS, STREAMS, BUCKETS)
