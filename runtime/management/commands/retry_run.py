"""`manage.py retry_run RUN --as NAME --reason WHY`: have a failed run go on from where it failed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime import actions
from runtime.core.errors import CoreError
from runtime.errors import NoSuchRun, RuntimeFault
from runtime.management.commands.verify_run import run_id
from runtime.ports import Actor, Forbidden, InvalidInput


class Command(BaseCommand):
    help = (
        "Have a failed run go on from where it failed, as the same run: what it did and was allowed stays,"
        " its model is asked again, and no call is repeated that may have happened."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=run_id, metavar="RUN", help="its id")
        parser.add_argument(
            "--as", dest="name", required=True, metavar="NAME", help="who retries it"
        )
        parser.add_argument("--reason", required=True, metavar="WHY", help="kept with the run")

    def handle(self, *args: Any, **options: Any) -> None:
        run, actor = options["run"], Actor(person=options["name"])
        try:
            actions.retry(run=run, reason=options["reason"], actor=actor)
        except NoSuchRun as exc:
            raise CommandError(f"{options['name']} cannot read a run {run}") from exc
        except Forbidden as exc:
            raise CommandError(exc.detail) from exc
        except InvalidInput as exc:
            raise CommandError(f"the reason {exc.detail}") from exc
        except (RuntimeFault, CoreError) as exc:
            raise CommandError(f"run {run} stays as it is: {exc}") from exc
        self.stdout.write(f"Run {run} is tried again.")
