"""`manage.py import_run FILE --as NAME`: import an exported run, or restore an archived one."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.control.transfer import import_run, restore_file
from runtime.core.documents.export_file import MAX_BYTES
from runtime.core.values.texts import write_on_one_line
from runtime.errors import Forbidden, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.store import sealed_files


class Command(BaseCommand):
    """Imports a run from a signed file."""

    help = (
        "Import a run from a file that is signed with a key of SIGNOFF_IMPORT_KEYS, or restore an archived one from"
        " a copy of its file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="an admin")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as exc:
            raise CommandError(f"{path} cannot be read: {exc.strerror}") from exc
        actor = Actor(person=options["name"])
        try:
            if sealed_files.is_sealed(data):
                run = restore_file(data=data, reason=f"from the file {path.name}", actor=actor)
                self.stdout.write(f"Run {run} is in Postgres again.")
                return
            run = import_run(data=data, actor=actor)
        except Forbidden as exc:
            raise CommandError(exc.detail) from exc
        except (RequestError, RuntimeFault, ImproperlyConfigured) as exc:
            raise CommandError(write_on_one_line(f"not imported: {exc}")) from exc
        self.stdout.write(f"Run {run} continues here.")
