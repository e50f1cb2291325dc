"""`manage.py people …`: manage people from a terminal or a script."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import CommandError, CommandParser

from approvals.management import command
from approvals.people import account_list, accounts
from approvals.rules.policy import Group


class Command(command.Command):
    """Adds, lists and changes people."""

    help = "Add people, disable and enable them, put them into groups, list them."
    examples = """\
  people add bea --group reviewers               asks for the password
  people add root --group admins --generate      prints a password, once
  people add ada --group requesters --group reviewers --password-stdin < file
  people group bea reviewers admins              exactly these groups
  people group cyril --none                      no group
  people add-group finance                       for rules of the policy to name
  people disable cyril                           ends sessions and tokens at once
  people enable cyril
  people password bea --password-file /run/secrets/bea
  people confirm bea reviewers                   as a second admin would; without RIGHT all that waits
  people list
"""

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        add = acts.add_parser("add", help="a new person")
        _add_name(add)
        add.add_argument("--group", "--groups", action="append", default=[])
        command.add_password_options(add)
        group = acts.add_parser("group", help="put a person into exactly these groups")
        _add_name(group)
        group.add_argument(
            "groups", nargs="*", metavar="GROUP", help=f"{', '.join(Group)}, or added"
        )
        group.add_argument("--none", action="store_true", help="no group at all")
        added = acts.add_parser("add-group", help="a group that rules of the policy can name")
        added.add_argument("name", metavar="NAME")
        password = acts.add_parser("password", help="a new password, which ends open sessions")
        _add_name(password)
        command.add_password_options(password)
        _add_name(acts.add_parser("disable", help="end rights, sessions and tokens at once"))
        _add_name(acts.add_parser("enable", help="let a person log in again"))
        confirm = acts.add_parser("confirm", help="confirm a right that an admin gave")
        _add_name(confirm)
        confirm.add_argument("rights", nargs="*", metavar="RIGHT", help="as `list` names them")
        acts.add_parser("list", help="all people, with groups, last login and valid tokens")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["act"]:
            case "add":
                groups = _check_groups(options["group"])
                password = command.read_password(options)
                accounts.create_person(username=options["name"], password=password, groups=groups)
                self.stdout.write(f"{options['name']} is added. Groups: {_join_groups(groups)}.")
                self._report(options, password)
            case "group":
                groups = _check_groups(options["groups"])
                if bool(options["groups"]) == options["none"]:
                    raise CommandError("give the groups, or --none")
                accounts.set_groups(options["name"], groups, actor=None)
                self.stdout.write(f"{options['name']} is in: {_join_groups(groups)}.")
            case "add-group":
                accounts.create_group(options["name"], actor=None)
                self.stdout.write(f"The group {options['name']} is created.")
            case "password":
                password = command.read_password(options)
                accounts.set_password(options["name"], password, actor=None)
                self.stdout.write(
                    f"{options['name']} has a new password. Open sessions have ended."
                )
                self._report(options, password)
            case "disable":
                accounts.disable(options["name"], actor=None)
                self.stdout.write(f"{options['name']} is disabled: no session, no token, no login.")
            case "enable":
                accounts.enable(options["name"], actor=None)
                self.stdout.write(f"{options['name']} can log in again. Tokens stay revoked.")
            case "confirm":
                name, rights = options["name"], options["rights"]
                person = account_list.read_person(name)
                waiting = {right.name: right.seq for right in person.rights if right.waits}
                if not set(rights) <= set(waiting):
                    raise CommandError(
                        f"these can be confirmed for {name}: {_join_groups(waiting)}"
                    )
                for right in rights or waiting:
                    accounts.confirm(name, right, seq=waiting[right], actor=None)
                    self.stdout.write(f"{right} of {name} is confirmed.")
            case "list":
                self._list()

    def _report(self, options: dict[str, Any], password: str) -> None:
        if options["generate"]:
            self.stdout.write(f"Password: {password}")

    def _list(self) -> None:
        for person in account_list.list_people():
            last_login = f"{person.last_login:%Y-%m-%d %H:%M} UTC" if person.last_login else "never"
            self.stdout.write(
                f"{person.username}\t{'active' if person.active else 'disabled'}"
                f"\tgroups: {_join_groups(person.groups)}\tlast login: {last_login}"
                f"\tvalid tokens: {person.valid_tokens}"
                f"\tto confirm: {_join_groups(right.name for right in person.rights if right.waits)}"
            )


def _check_groups(groups: list[str]) -> set[str]:
    words = account_list.group_words()
    if unknown := sorted(set(groups) - set(words)):
        raise CommandError(f"no such group: {', '.join(unknown)}; there are {_join_groups(words)}")
    return set(groups)


def _add_name(parser: CommandParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME")


def _join_groups(groups: Any) -> str:
    return ", ".join(sorted(groups)) or "none"
