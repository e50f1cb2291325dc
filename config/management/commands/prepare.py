"""`manage.py prepare`: everything that must be there before the processes start."""

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from runtime import keyring


class Command(BaseCommand):
    help = "Migrate the database, make missing keys, collect static files. Safe to repeat."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--without-static",
            action="store_true",
            help="static files were collected before, as they are in the image",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=options["verbosity"])
        for purpose in keyring.PURPOSES:
            keyring.ensure(purpose)
        keyring.share()
        if not options["without_static"]:
            call_command("collectstatic", interactive=False, verbosity=0)
