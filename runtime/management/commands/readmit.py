"""`manage.py readmit RUN --as NAME --reason WHY`: let a run out of quarantine."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime import actions
from runtime.core.errors import CoreError
from runtime.errors import NoSuchRun, RuntimeFault
from runtime.management.commands.verify_run import run_id
from runtime.ports import Actor, Forbidden, InvalidInput


class Command(BaseCommand):
    help = (
        "Let a run out of quarantine: everything that is stored of it is verified, and if all of it holds"
        " the run goes on where it stood; one that killed its workers goes on alone in a process."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=run_id, metavar="RUN", help="its id")
        parser.add_argument("--as", dest="name", required=True, metavar="NAME", help="an admin")
        parser.add_argument("--reason", required=True, metavar="WHY", help="kept with the run")

    def handle(self, *args: Any, **options: Any) -> None:
        run, actor = options["run"], Actor(person=options["name"])
        try:
            actions.readmit(run=run, reason=options["reason"], actor=actor)
        except NoSuchRun as exc:
            raise CommandError(f"{options['name']} cannot read a run {run}") from exc
        except Forbidden as exc:
            raise CommandError(exc.detail) from exc
        except InvalidInput as exc:
            raise CommandError(f"the reason {exc.detail}") from exc
        except (RuntimeFault, CoreError) as exc:
            raise CommandError(f"run {run} stays as it is: {exc}") from exc
        self.stdout.write(f"Run {run} is out of quarantine.")
