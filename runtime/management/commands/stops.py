"""`manage.py stops …`: engage, disengage and list kill switches."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.errors import InvalidInput, RequestError
from runtime.store.tables.kill_switches import EVERY_AGENT, KillSwitch

EXAMPLES = """\
  stops put hr_onboarding --reason "wrong mails"   this agent, wherever it works
  stops put --all --reason "directory is broken"   every agent
  stops list                                       the stopped agents
  stops lift 3                                     disengage
"""


class Command(BaseCommand):
    """Engages, disengages and lists kill switches."""

    help = "Stop an agent, or all of them, within two seconds; lift the stop; list stops."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        put = acts.add_parser("put", help="stop an agent, or all")
        put.add_argument("agent", nargs="?", default=EVERY_AGENT, metavar="AGENT")
        put.add_argument("--all", action="store_true")
        put.add_argument("--reason", required=True)
        lift = acts.add_parser("lift", help="disengage a kill switch")
        lift.add_argument("stop", type=int, metavar="NUMBER")
        acts.add_parser("list", help="list the stopped agents")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._act(options)
        except InvalidInput as problem:
            raise CommandError(f"the {problem.field} {problem.detail}") from problem
        except RequestError as problem:
            raise CommandError(str(problem)) from problem

    def _act(self, options: dict[str, Any]) -> None:
        match options["act"]:
            case "put":
                if bool(options["agent"]) == options["all"]:
                    raise CommandError("name one agent, or give --all")
                done = engage(agent=options["agent"], reason=options["reason"], actor=None)
                self.stdout.write(f"Stopped: {_line(done)}")
            case "lift":
                done = disengage(stop=options["stop"], actor=None)
                self.stdout.write(f"Goes on: {done.agent or 'every agent'}")
            case "list":
                for one in list_switches(lifted=False, actor=None):
                    self.stdout.write(_line(one))


def _line(stop: KillSwitch) -> str:
    who = stop.stopped_by or "the command line"
    return f"{stop.id}\t{stop.agent or 'every agent'}\t{who}\t{stop.at:%Y-%m-%d %H:%M} UTC\t{stop.reason!r}"
