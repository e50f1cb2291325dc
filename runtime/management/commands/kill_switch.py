"""`manage.py kill_switch …`: engage, disengage and list kill switches."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.errors import InvalidInput, RequestError
from runtime.store.tables.kill_switches import EVERY_AGENT, KillSwitchRow

EXAMPLES = """\
  kill_switch engage hr_onboarding --reason "wrong mails"   this agent, in each run
  kill_switch engage --all --reason "directory is broken"   every agent
  kill_switch list                                          the stopped agents
  kill_switch disengage 3                                   let its runs continue
"""


class Command(BaseCommand):
    """Engages, disengages and lists kill switches."""

    help = "Stop an agent, or all of them, within two seconds; disengage and list kill switches."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        switch = acts.add_parser("engage", help="stop an agent, or all")
        switch.add_argument("agent", nargs="?", default=EVERY_AGENT, metavar="AGENT")
        switch.add_argument("--all", action="store_true")
        switch.add_argument("--reason", required=True)
        off = acts.add_parser("disengage", help="disengage a kill switch")
        off.add_argument("stop", type=int, metavar="NUMBER")
        acts.add_parser("list", help="list the stopped agents")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            match options["act"]:
                case "engage":
                    if bool(options["agent"]) == options["all"]:
                        raise CommandError("name one agent, or give --all")
                    agent, reason = options["agent"], options["reason"]
                    kill_switch = engage(agent=agent, reason=reason, actor=None)
                    self.stdout.write(f"Stopped: {_format_switch(kill_switch)}")
                case "disengage":
                    kill_switch = disengage(stop=options["stop"], actor=None)
                    self.stdout.write(f"Disengaged: {kill_switch.agent or 'every agent'}")
                case "list":
                    for kill_switch in list_switches(lifted=False, actor=None):
                        self.stdout.write(_format_switch(kill_switch))
        except InvalidInput as problem:
            raise CommandError(f"the {problem.field} {problem.detail}") from problem
        except RequestError as problem:
            raise CommandError(str(problem)) from problem


def _format_switch(stop: KillSwitchRow) -> str:
    who = stop.stopped_by or "the command line"
    return f"{stop.id}\t{stop.agent or 'every agent'}\t{who}\t{stop.at:%Y-%m-%d %H:%M} UTC\t{stop.reason!r}"
