"""What commands about runs share: the id as an argument, one act with a reason, and the list of old runs."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper

from runtime.core.values.errors import CoreError
from runtime.errors import Forbidden, InvalidInput, NoSuchRun, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.upkeep.retention import OldRuns


def parse_run_id(text: str) -> UUID:
    """Parse the id of a run. Raise ArgumentTypeError."""
    try:
        return UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not the id of a run") from None


class AgainCommand(BaseCommand):
    """A command that calls `act` with run, reason and actor, and reports `outcome`. `who` is the help of `--as`."""

    act: ClassVar[Callable[..., object]]
    who: ClassVar[str]
    outcome: ClassVar[str]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=parse_run_id, metavar="RUN", help="its id")
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


def write_groups(stdout: OutputWrapper, groups: list[OldRuns]) -> int:
    """Write a line for each group, and return how many runs there are."""
    for group in groups:
        stdout.write(
            f"{group.agent} {group.status}: {group.runs} runs older than {group.days} days,"
            f" the first of {group.earliest:%Y-%m-%d}"
        )
    return sum(group.runs for group in groups)
