"""`manage.py schedules …`: make, show, change, pause, resume, end, run and back-fill schedules as a person."""

import json
from argparse import RawDescriptionHelpFormatter
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.errors import InvalidInput, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.store.tables.triggers.schedule_times import TimeRow
from runtime.triggers import changes, listing
from runtime.triggers.definition import Missed, Overlap
from runtime.triggers.listing import ScheduleView

EXAMPLES = """\
  schedules list --as ada
  schedules add --as ada --name Nightly --agent hr_onboarding --input '{"username": "newhire"}' \\
      --cron "30 2 * * MON-FRI" --zone Europe/Berlin
  schedules pause 0192f1c2-… --as ada
  schedules backfill 0192f1c2-… --as ada --from 2026-03-01 --until 2026-03-31
"""
DEFINED = (
    *("name", "agent", "cron", "every", "zone", "starts_at", "ends_at"),
    *("missed", "overlap", "jitter", "thread"),
)
ACTS = {"pause": changes.pause, "resume": changes.resume, "end": changes.end}


class Command(BaseCommand):
    """Makes, lists and changes schedules."""

    help = "Work on schedules with the rights of a person."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        _parser(acts, "list", "list the schedules that the person may read")
        _parser(acts, "show", "show its next and past times, with their runs", schedule=True)
        _add_definition(_parser(acts, "add", "make a schedule that the person owns"))
        _add_definition(_parser(acts, "change", "replace all that it says", schedule=True))
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
                rows, cut = listing.rows(actor)
                for row in rows:
                    at = "" if row.next_at is None else f"{row.next_at:%Y-%m-%d %H:%M} UTC"
                    state = row.problem or row.state
                    self.stdout.write(f"{row.id}\t{state}\t{at}\t{row.agent}\t{row.name}")
                if cut:
                    self.stderr.write(f"Only {len(rows)} schedules are listed.")
            case "show":
                self._show(listing.one(_id(number), actor))
            case "add":
                self.stdout.write(f"Made: {changes.create(sent=_definition(options), actor=actor)}")
            case "change":
                changes.change(id=_id(number), sent=_definition(options), actor=actor)
                self.stdout.write("Done: change")
            case "run":
                self.stdout.write(f"Started: {changes.run_now(id=_id(number), actor=actor)}")
            case "backfill":
                first, until = options["first"], options["until"]
                count = changes.backfill(id=_id(number), first=first, until=until, actor=actor)
                self.stdout.write(f"{count} times start a run")
            case _:
                ACTS[act](id=_id(number), actor=actor)
                self.stdout.write(f"Done: {act}")

    def _show(self, schedule: ScheduleView) -> None:
        """Write its state, next times, last failure and newest past times: a line each."""
        definition = schedule.definition
        self.stdout.write(
            f"{definition.name}\t{schedule.status}\t{definition.rhythm}\t{definition.zone}"
        )
        for at in schedule.next_times:
            self.stdout.write(f"next\t{at.isoformat()}")
        if schedule.last_failure is not None:
            self.stdout.write(f"last failure\t{_time(schedule.last_failure)}")
        for row in schedule.history:
            self.stdout.write(f"past\t{_time(row)}")


def _time(row: TimeRow) -> str:
    return f"{row.at.isoformat()}\t{row.state}\t{row.run or ''}\t{row.reason}".rstrip()


def _add_definition(parser: CommandParser) -> None:
    for name in ("name", "agent"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--input", default="{}", metavar="JSON")
    parser.add_argument("--cron", default="", metavar="FIELDS", help="five fields, in --zone")
    parser.add_argument("--every", type=int, metavar="SECONDS", help="instead of --cron")
    parser.add_argument("--zone", default="UTC")
    parser.add_argument("--start", dest="starts_at", metavar="TIME")
    parser.add_argument("--end", dest="ends_at", metavar="TIME")
    parser.add_argument("--missed", choices=[*Missed], default=str(Missed.ONCE))
    parser.add_argument("--overlap", choices=[*Overlap], default=str(Overlap.SKIP))
    parser.add_argument("--jitter", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--thread", default="", help="the conversation of its runs")


def _definition(options: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: options[name] for name in DEFINED},
        "input": _json(options["input"]),
    }


def _parser(acts: Any, name: str, text: str, *, schedule: bool = False) -> CommandParser:
    parser: CommandParser = acts.add_parser(name, help=text)
    if schedule:
        parser.add_argument("schedule", metavar="ID")
    parser.add_argument(
        "--as", dest="actor", required=True, metavar="NAME", help="who does it, with their rights"
    )
    return parser


def _id(text: Any) -> UUID:
    try:
        return UUID(str(text))
    except ValueError as exc:
        raise CommandError(f"{text!r} is not the id of a schedule") from exc


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise CommandError(f"--input is not JSON: {exc}") from exc
