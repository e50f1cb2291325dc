"""`manage.py export_run RUN FILE --as NAME`: move a run to another installation."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.control.transfer import export_run
from runtime.core.documents import export_file
from runtime.errors import NoSuchRun, RequestError, RuntimeFault
from runtime.management.command import parse_run_id
from runtime.ports.access import Actor


class Command(BaseCommand):
    """Exports a run as a signed file."""

    help = (
        "End a waiting run here and write it, or an exported run again, as one signed file."
        " Needs the private key of exports."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=parse_run_id, metavar="RUN", help="its id")
        parser.add_argument(
            "file", type=Path, metavar="FILE", help="written anew, never over another"
        )
        parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="an admin")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        if path.exists():
            raise CommandError(f"{path} exists already")
        try:
            text = export_run(run=options["run"], actor=Actor(person=options["name"]))
        except NoSuchRun as exc:
            raise CommandError(f"{options['name']} cannot read a run {options['run']}") from exc
        except (RequestError, RuntimeFault, ImproperlyConfigured) as exc:
            raise CommandError(str(exc)) from exc
        try:
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(text, encoding="ascii")
        except OSError as exc:
            raise CommandError(
                f"the run is exported, but {path} cannot be written ({exc.strerror}): try again"
            ) from exc
        self.stdout.write(f"Run {options['run']} is exported to {path}.")
        secrets = export_file.check(export_file.decode(text))[0].secrets
        if secrets:
            keys = ", ".join(secrets)
            self.stdout.write(
                f"It carries sealed secrets: only an installation whose ring of secrets has {keys} takes it over."
            )
