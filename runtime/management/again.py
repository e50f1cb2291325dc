"""The shared part of commands that do one act on a run with a reason, such as `release_run` and `hold_run`."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.core.errors import CoreError
from runtime.errors import Forbidden, InvalidInput, NoSuchRun, RequestError, RuntimeFault
from runtime.management.run_ids import run_id
from runtime.ports.access import Actor


class AgainCommand(BaseCommand):
    """A command that calls `act` with run, reason and actor, and reports `outcome`. `who` is the help of `--as`."""

    act: ClassVar[Callable[..., object]]
    who: ClassVar[str]
    outcome: ClassVar[str]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=run_id, metavar="RUN", help="its id")
        parser.add_argument("--as", dest="name", required=True, metavar="NAME", help=self.who)
        parser.add_argument("--reason", required=True, metavar="WHY", help="kept with the run")

    def handle(self, *args: Any, **options: Any) -> None:
        run, actor = options["run"], Actor(person=options["name"])
        try:
            self.act(run=run, reason=options["reason"], actor=actor)
        except NoSuchRun as exc:
            raise CommandError(f"{options['name']} cannot read a run {run}") from exc
        except Forbidden as exc:
            raise CommandError(exc.detail) from exc
        except InvalidInput as exc:
            raise CommandError(f"the reason {exc.detail}") from exc
        except (RequestError, RuntimeFault, CoreError) as exc:
            raise CommandError(f"run {run} stays as it is: {exc}") from exc
        self.stdout.write(f"Run {run} {self.outcome}.")
