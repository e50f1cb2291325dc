"""`manage.py triggers …`: make, list, pause, resume and end triggers as a person, and retry their events."""

import json
from argparse import RawDescriptionHelpFormatter
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.errors import InvalidInput, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.triggers.events import changes, listing

EXAMPLES = """\
  triggers list --as ada
  triggers add --as ada '{"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": {}}'
  triggers pause 0192f1c2-… --as ada
  triggers retry 0192f1c2-… 17 --as ada
"""
ACTS = {"pause": changes.pause, "resume": changes.resume, "end": changes.end}


class Command(BaseCommand):
    """Makes, lists and changes triggers."""

    help = (
        "Make, list, pause, resume and end triggers, and retry events, with the rights of a person."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        _parser(acts, "list", "list the triggers that the person may read")
        add = _parser(acts, "add", "make a trigger that the person owns")
        add.add_argument("definition", metavar="JSON", help="as the API accepts it")
        for act in ACTS:
            _parser(acts, act, f"{act} a trigger").add_argument("trigger", metavar="ID")
        retry = _parser(acts, "retry", "handle an event again that started no run")
        retry.add_argument("trigger", metavar="ID")
        retry.add_argument("number", type=int, help="of the event, as the API shows it")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._act(options["act"], Actor(person=options["actor"]), options)
        except InvalidInput as problem:
            raise CommandError(problem.all_of_it) from problem
        except (RequestError, RuntimeFault) as problem:
            raise CommandError(str(problem)) from problem

    def _act(self, act: str, actor: Actor, options: dict[str, Any]) -> None:
        match act:
            case "list":
                for row in listing.rows(actor):
                    words = (str(row.id), row.state, row.event, row.agent, row.name)
                    self.stdout.write("\t".join(words))
            case "add":
                made = changes.create(sent=_definition(options["definition"]), actor=actor)
                self.stdout.write(f"Made: {made}")
            case "retry":
                changes.retry(id=_id(options), number=options["number"], actor=actor)
                self.stdout.write("Done: retry")
            case _:
                ACTS[act](id=_id(options), actor=actor)
                self.stdout.write(f"Done: {act}")


def _parser(acts: Any, name: str, text: str) -> CommandParser:
    found: CommandParser = acts.add_parser(name, help=text)
    found.add_argument(
        "--as", dest="actor", required=True, metavar="NAME", help="who does it, with their rights"
    )
    return found


def _id(options: dict[str, Any]) -> UUID:
    try:
        return UUID(str(options["trigger"]))
    except ValueError as exc:
        raise CommandError(f"{options['trigger']!r} is no id of a trigger") from exc


def _definition(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"the definition is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise CommandError("the definition is no JSON object")
    return found
