"""`manage.py apply_retention`: erase payloads now by the rules of SIGNOFF_RETENTION, or preview it."""

import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from runtime.management.command import write_groups
from runtime.store import pool
from runtime.upkeep import journals, retention, startup


class Command(BaseCommand):
    """Erases the payloads of old ended runs."""

    help = "Delete the payloads of ended runs by SIGNOFF_RETENTION, as the sweeper does every hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="list the runs that would be erased, and erase nothing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database()
        if not any(rule.days for rule in retention.read_rules()):
            self.stdout.write("SIGNOFF_RETENTION has no rule: nothing is ever removed.")
            return
        with pool.open_own() as connection:
            total = write_groups(self.stdout, retention.preview(connection))
            if options["dry_run"]:
                self.stdout.write(f"{total} runs would lose their payloads.")
                for name in journals.list_empty_partitions(connection):
                    self.stdout.write(f"{name} would be dropped: it is empty.")
                return
            removed = retention.enforce(connection, threading.Event())
            journals.drop_empty_partitions(connection)
            self.stdout.write(f"{removed} of {total} runs have lost their payloads.")
