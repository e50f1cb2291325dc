"""`manage.py schedules …`: make, list, pause, resume, end, run and back-fill schedules as a person."""

import json
from argparse import RawDescriptionHelpFormatter
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.errors import InvalidInput, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.triggers import changes, listing
from runtime.triggers.definition import Missed, Overlap

EXAMPLES = """\
  schedules list --as ada
  schedules add --as ada --name Nightly --agent hr_onboarding --input '{"username": "newhire"}' \\
      --cron "30 2 * * MON-FRI" --zone Europe/Berlin
  schedules pause 0192f1c2-… --as ada
  schedules backfill 0192f1c2-… --as ada --from 2026-03-01 --until 2026-03-31
"""
ACTS = {"pause": changes.pause, "resume": changes.resume, "end": changes.end}


class Command(BaseCommand):
    """Makes, lists and changes schedules."""

    help = (
        "Make, list, pause, resume, end, run and back-fill schedules, with the rights of a person."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        _parser(acts, "list", "list the schedules that the person may read")
        add = _parser(acts, "add", "make a schedule that the person owns")
        for name in ("name", "agent"):
            add.add_argument(f"--{name}", required=True)
        add.add_argument("--input", default="{}", metavar="JSON")
        add.add_argument("--cron", default="", metavar="FIELDS", help="five fields, in --zone")
        add.add_argument("--every", type=int, metavar="SECONDS", help="instead of --cron")
        add.add_argument("--zone", default="UTC")
        add.add_argument("--start", dest="starts_at", metavar="TIME")
        add.add_argument("--end", dest="ends_at", metavar="TIME")
        add.add_argument("--missed", choices=[*Missed], default=str(Missed.ONCE))
        add.add_argument("--overlap", choices=[*Overlap], default=str(Overlap.SKIP))
        add.add_argument("--jitter", type=int, default=0, metavar="SECONDS")
        for act in ACTS:
            _parser(acts, act, f"{act} a schedule", schedule=True)
        _parser(acts, "run", "start a run at once", schedule=True)
        fill = _parser(acts, "backfill", "start runs for past times", schedule=True)
        fill.add_argument("--from", dest="first", required=True, metavar="TIME")
        fill.add_argument("--until", required=True, metavar="TIME")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._act(options["act"], Actor(person=options["actor"]), options)
        except InvalidInput as problem:
            raise CommandError(problem.all_of_it) from problem
        except (RequestError, RuntimeFault) as problem:
            raise CommandError(str(problem)) from problem

    def _act(self, act: str, actor: Actor, options: dict[str, Any]) -> None:
        number = options.get("schedule")
        match act:
            case "list":
                for row in listing.rows(actor):
                    at = "" if row.next_at is None else f"{row.next_at:%Y-%m-%d %H:%M} UTC"
                    self.stdout.write(f"{row.id}\t{row.state}\t{at}\t{row.agent}\t{row.name}")
            case "add":
                sent = {name: options[name] for name in ("name", "agent", "cron", "every", "zone")}
                sent |= {name: options[name] for name in ("missed", "overlap", "jitter")}
                sent |= {name: options[name] for name in ("starts_at", "ends_at")}
                made = changes.create(sent={**sent, "input": _json(options["input"])}, actor=actor)
                self.stdout.write(f"Made: {made}")
            case "run":
                self.stdout.write(f"Started: {changes.run_now(id=_id(number), actor=actor)}")
            case "backfill":
                first, until = options["first"], options["until"]
                count = changes.backfill(id=_id(number), first=first, until=until, actor=actor)
                self.stdout.write(f"{count} times start a run")
            case _:
                ACTS[act](id=_id(number), actor=actor)
                self.stdout.write(f"Done: {act}")


def _parser(acts: Any, name: str, text: str, *, schedule: bool = False) -> CommandParser:
    found: CommandParser = acts.add_parser(name, help=text)
    if schedule:
        found.add_argument("schedule", metavar="ID")
    found.add_argument(
        "--as", dest="actor", required=True, metavar="NAME", help="who does it, with their rights"
    )
    return found


def _id(text: Any) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as exc:
        raise CommandError(f"{text!r} is no id of a schedule") from exc


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise CommandError(f"--input is not JSON: {exc}") from exc
