"""`manage.py allowance …`: list allowances and revoke one from a terminal or a script."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from approvals import clock
from approvals.governance import allowance_changes, allowances
from approvals.management import command


class Command(command.Command):
    """Lists allowances, and revokes one."""

    help = "List allowances, and revoke one at once."
    examples = """\
  allowance list                          the newest, with the calls left
  allowance revoke 0192…                  also a proposal
  allowance revoke 0192… --reason "..."
"""

    def add_arguments(self, parser: CommandParser) -> None:
        added = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        added.add_parser("list", help="the newest allowances")
        revoke = added.add_parser("revoke", help="revoke one")
        revoke.add_argument("allowance", type=UUID)
        revoke.add_argument("--reason", default="", help="recorded with it")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "revoke":
            allowance_changes.revoke(options["allowance"], actor=None, reason=options["reason"])
            self.stdout.write("The allowance is revoked.")
            return
        newest, broken = allowances.read_newest()
        at = clock.read_time()
        for allowance in newest:
            self.stdout.write(
                f"{allowance.id}\t{allowance.state(at)}\t{allowance.left} of {allowance.terms.count} left"
                f"\t{allowance.terms.action.tool}\tby {' and '.join(allowance.makers)}"
                f"\tuntil {allowance.terms.ends_at:%Y-%m-%d %H:%M} UTC"
            )
        if broken:
            raise CommandError("; ".join(broken))
