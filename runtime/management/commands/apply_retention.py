"""`manage.py apply_retention`: erase payloads now by the rules of ABEYANCE_RETENTION, or preview it."""

import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from runtime.store import pool
from runtime.upkeep import partitions, retention, startup


class Command(BaseCommand):
    """Erases the payloads of old ended runs."""

    help = (
        "Delete the payloads of ended runs by ABEYANCE_RETENTION, as the sweeper does every hour."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="list the runs that would be erased, and erase nothing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database()
        if not any(rule.days for rule in retention.rules()):
            self.stdout.write("ABEYANCE_RETENTION has no rule: nothing is ever removed.")
            return
        with pool.own() as connection:
            groups = retention.preview(connection)
            for group in groups:
                self.stdout.write(
                    f"{group.agent} {group.status}: {group.runs} runs older than {group.days} days,"
                    f" the first of {group.earliest:%Y-%m-%d}"
                )
            total = sum(group.runs for group in groups)
            if options["dry_run"]:
                self.stdout.write(f"{total} runs would lose their payloads.")
                for name in partitions.empty(connection):
                    self.stdout.write(f"{name} would be dropped: it is empty.")
                return
            removed = retention.enforce(connection, threading.Event())
            partitions.drop_empty(connection)
            self.stdout.write(f"{removed} of {total} runs have lost their payloads.")
