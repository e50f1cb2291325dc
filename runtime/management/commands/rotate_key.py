"""`manage.py rotate_key PURPOSE`: create a key for new documents; older keys only verify."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from runtime.keyring import files, purposes


class Command(BaseCommand):
    """Puts a new key on top of a key file."""

    help = "Put a new key on top of a ring in KEYS_DIR. Copy the file to the other machines, and restart the processes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("purpose", choices=purposes.PURPOSES)

    def handle(self, *args: Any, **options: Any) -> None:
        purpose: str = options["purpose"]
        self.stdout.write(f"{purpose}: key {files.rotate(purpose)} is the newest.")
