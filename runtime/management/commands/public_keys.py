"""`manage.py public_keys PURPOSE`: print the public keys that verify the signatures of this installation."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from runtime.keyring import files, purposes, signatures


class Command(BaseCommand):
    """Prints the public keys of a purpose."""

    help = (
        "Print the public keys of a purpose as lines of `id:hex`, the current one first. Those of archives verify the"
        " files of archived runs; they are derived from the keys of the journal."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        choices = sorted({purposes.ARCHIVES, *purposes.SIGNED})
        parser.add_argument("purpose", choices=choices)

    def handle(self, *args: Any, **options: Any) -> None:
        purpose: str = options["purpose"]
        if purpose == purposes.ARCHIVES:
            keys = signatures.list_public_keys()
        else:
            keys = [
                (key_id, files.read_key(purpose, key_id)) for key_id in files.list_key_ids(purpose)
            ]
        for key_id, key in keys:
            self.stdout.write(f"{key_id}:{key.hex()}")
