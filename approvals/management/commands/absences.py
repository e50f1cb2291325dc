"""`manage.py absences …`: list who is away, and end an absence."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from approvals.management import command
from approvals.people import absences


class Command(command.Command):
    """Lists and ends absences. Only the person themselves can name a deputy."""

    help = "List who is away and who decides in their place, and end an absence."
    examples = """\
  absences list
  absences end bea                        at once: the deputy decides nothing more in her place
"""

    def add_arguments(self, parser: CommandParser) -> None:
        added = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        added.add_parser("list", help="every absence that is not over")
        end = added.add_parser("end", help="end an absence at once")
        end.add_argument("name", metavar="NAME", help="the absent person")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "list":
            for away in absences.list_away():
                self.stdout.write(
                    f"{away.person}\t{'away' if away.has_begun else 'planned'}\tdeputy: {away.deputy}"
                    f"\t{away.starts:%Y-%m-%d %H:%M} to {away.ends:%Y-%m-%d %H:%M} UTC"
                )
            return
        if not absences.end_absence(options["name"], actor=None):
            raise CommandError(f"{options['name']} is not away")
        self.stdout.write(f"The absence of {options['name']} has ended.")
