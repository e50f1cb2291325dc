"""`manage.py schedules …`: make, show, change, pause, resume, end, run and back-fill schedules as a person."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runtime.management.command import TriggerCommand, read_json
from runtime.ports.access import Actor
from runtime.store.tables.occurrences import OccurrenceRow
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes
from runtime.triggers.listing import TriggerView
from runtime.triggers.schedule_definition import Missed, Overlap

DEFINED = (
    *("name", "agent", "cron", "every", "zone", "starts_at", "ends_at"),
    *("missed", "overlap", "jitter", "thread"),
)


class Command(TriggerCommand):
    """Makes, lists and changes schedules."""

    help = "Work on schedules with the rights of a person."
    kind = TriggerKind.SCHEDULE
    shows = "next and past times, with their runs"
    examples = """\
  schedules list --as ada
  schedules add --as ada --name Nightly --agent hr_onboarding --input '{"username": "newhire"}' \\
      --cron "30 2 * * MON-FRI" --zone Europe/Berlin
  schedules pause 0192f1c2-… --as ada
  schedules backfill 0192f1c2-… --as ada --from 2026-03-01 --until 2026-03-31
"""

    def add_own_acts(self, acts: Any) -> None:
        self.add_act(acts, "run", "start a run at once", of_one=True)
        backfill = self.add_act(acts, "backfill", "start runs for past times", of_one=True)
        backfill.add_argument("--from", dest="first", required=True, metavar="TIME")
        backfill.add_argument("--until", required=True, metavar="TIME")

    def add_definition(self, parser: CommandParser) -> None:
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

    def read_definition(self, options: dict[str, Any]) -> dict[str, Any]:
        input_value = read_json(options["input"], "--input")
        return {**{name: options[name] for name in DEFINED}, "input": input_value}

    def list_columns(self, row: TriggerRow) -> tuple[str, ...]:
        at = "" if row.next_at is None else f"{row.next_at:%Y-%m-%d %H:%M} UTC"
        return at, row.agent, row.name

    def act(self, act: str, id: UUID, actor: Actor, options: dict[str, Any]) -> str:
        if act == "run":
            return f"Started: {changes.run_now(id=id, actor=actor)}"
        first, until = options["first"], options["until"]
        count = changes.backfill(id=id, first=first, until=until, actor=actor)
        return f"{count} times start a run"

    def show(self, view: TriggerView) -> None:
        """Write its state, next times, last failure and newest past times: a line each."""
        definition = view.definition
        self.stdout.write(
            f"{definition.name}\t{view.state}\t{definition.rhythm}\t{definition.zone}"
        )
        for at in view.next_times:
            self.stdout.write(f"next\t{at.isoformat()}")
        if view.last_failure is not None:
            self.stdout.write(f"last failure\t{_format_time(view.last_failure)}")
        for row in view.history:
            self.stdout.write(f"past\t{_format_time(row)}")


def _format_time(row: OccurrenceRow) -> str:
    return f"{row.at.isoformat()}\t{row.state}\t{row.run or ''}\t{row.reason}".rstrip()
