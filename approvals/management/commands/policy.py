"""`manage.py policy …`: import, confirm and export versions of the policy from a terminal or a script."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from approvals import clock
from approvals.governance import policies
from approvals.management import command
from approvals.rules import policy_text as texts
from runtime.errors import InvalidInput


class Command(command.Command):
    """Imports, checks, confirms, withdraws, exports and lists versions of the policy."""

    help = "Say who may decide."
    examples = """\
  policy check rules.yaml                 names every error, and saves nothing
  policy import rules.yaml                a new version, which waits for a confirmation
  policy import rules.yaml --confirm      in force at once
  policy confirm 3
  policy withdraw 3
  policy export > rules.yaml              the version in force; `export 3` another one
  policy list
"""

    def add_arguments(self, parser: CommandParser) -> None:
        added = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        check = added.add_parser("check", help="check a file")
        check.add_argument("file", help="YAML, or - for standard input")
        imported = added.add_parser("import", help="save a file as a new version")
        imported.add_argument("file", help="YAML, or - for standard input")
        imported.add_argument("--confirm", action="store_true", help="put it in force at once")
        for act in ("confirm", "withdraw"):
            added.add_parser(act).add_argument("number", type=int)
        export = added.add_parser("export", help="print a version")
        export.add_argument("number", type=int, nargs="?")
        added.add_parser("list", help="all versions")

    def handle(self, *args: Any, **options: Any) -> None:
        number = options.get("number")
        match options["act"]:
            case "check":
                text = command.read_text(options["file"])
                try:
                    rules = policies.check(text).rules
                except InvalidInput as exc:
                    errors = [error.detail for error in (exc, *exc.further)]
                    for index, detail in enumerate(errors, 1):
                        self.stdout.write(f"{index}. The policy {detail}.")
                    count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
                    raise CommandError(count) from exc
                self.stdout.write(f"{len(rules)} rules, no errors.")
            case "import":
                number = policies.propose(command.read_text(options["file"]), actor=None)
                if options["confirm"]:
                    policies.confirm(number, actor=None)
                state = "in force" if options["confirm"] else "waiting for a confirmation"
                self.stdout.write(f"Version {number} is {state}.")
            case "confirm":
                policies.confirm(options["number"], actor=None)
                self.stdout.write(f"Version {number} is in force.")
            case "withdraw":
                policies.withdraw(options["number"], actor=None)
                self.stdout.write(f"Version {number} is withdrawn.")
            case "export":
                versions = policies.read_versions()
                version = policies.find_version_in_force(versions, clock.read_time())
                if number is not None:
                    version = next((row for row in versions if row.number == number), None)
                    if version is None:
                        raise CommandError(f"there is no version {number}")
                self.stdout.write(version.text if version else texts.DEFAULT, ending="")
            case "list":
                self._list()

    def _list(self) -> None:
        versions, at = policies.read_versions(), clock.read_time()
        now = policies.find_version_in_force(versions, at)
        self.stdout.write(f"1\tthe default policy{'' if now else ', in force'}")
        for version in versions:
            state = policies.name_state(version, now, at)
            if state == "waiting" and version.effective_at:
                state = f"in force from {version.effective_at}"
            self.stdout.write(
                f"{version.number}\t{state}\tby {version.author or 'the command line'}"
                f"\t{version.proposed_at:%Y-%m-%d %H:%M} UTC"
            )
