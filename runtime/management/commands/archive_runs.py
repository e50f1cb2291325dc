"""`manage.py archive_runs`: archive runs now by the rules of SIGNOFF_ARCHIVE, or preview it."""

import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from runtime.management.command import write_groups
from runtime.store import pool
from runtime.upkeep import retention, startup


class Command(BaseCommand):
    """Archives old ended runs."""

    help = "Move ended runs into the archive by SIGNOFF_ARCHIVE, as the sweeper does every hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="list the runs that would be archived, and archive nothing",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database()
        if not any(rule.days for rule in retention.archive_rules()):
            self.stdout.write("SIGNOFF_ARCHIVE has no rule: no run is ever archived.")
            return
        with pool.open_own() as connection:
            total = write_groups(self.stdout, retention.preview_archive(connection))
            if options["dry_run"]:
                self.stdout.write(f"{total} runs would be archived.")
                return
            archived = retention.archive_old_runs(connection, threading.Event())
            self.stdout.write(f"{archived} of {total} runs are archived.")
