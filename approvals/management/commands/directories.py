"""`manage.py directories …`: let directories provision people. The plain text of a new token is printed once."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.management import command
from approvals.people import directories, mappings


class Command(command.Command):
    """Makes and revokes tokens of directories, maps their groups to rights, and lists all of it."""

    help = "Let directories provision people with SCIM."
    examples = """\
  directories token acme --days 365              print its token, once
  directories map "directory acme" "Finance approvers" reviewers
"""

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        token = acts.add_parser("token", help="print a new token of a directory, once")
        token.add_argument("name", metavar="NAME")
        token.add_argument("--days", type=int, default=365, metavar="DAYS", help="until it expires")
        revoke = acts.add_parser("revoke", help="end a token for good")
        revoke.add_argument("public_id", metavar="PUBLIC_ID", help="the part after sgd_")
        for act, help_text in (
            ("map", "give the people in a group a right, also if an admin proposed it"),
            ("unmap", "end a mapping and its rights"),
        ):
            mapping = acts.add_parser(act, help=help_text)
            mapping.add_argument("source", metavar="SOURCE", help="as `list` names it")
            mapping.add_argument("value", metavar="GROUP", help="empty for a sign-in")
            mapping.add_argument("right", metavar="RIGHT", help="a group here, or oidc:NAME")
        adopt = acts.add_parser("adopt", help="let a directory change a person who has an account")
        adopt.add_argument("name", metavar="NAME")
        adopt.add_argument("person", metavar="PERSON", help="the username here")
        adopt.add_argument("user_name", metavar="USERNAME", help="that of the directory")
        acts.add_parser("list", help="directories, with their mappings")

    def handle(self, *args: Any, **options: Any) -> None:
        mapping = [options.get(name, "") for name in ("source", "value", "right")]
        match options["act"]:
            case "token":
                name, days = options["name"], options["days"]
                self.stdout.write(directories.create_token(name, days=days, actor=None)[1])
            case "revoke":
                directories.revoke_token(options["public_id"], actor=None)
                self.stdout.write(f"Token {options['public_id']} is revoked.")
            case "map":
                source, value, right = mapping
                terms = [(row.value, row.right) for row in mappings.find_all(source)]
                if (value, right) not in terms:
                    mappings.propose(*mapping, actor=None)
                mappings.confirm(*mapping, actor=None)
                self.stdout.write(f"{value or 'each person'} of {source} has {right}.")
            case "unmap":
                mappings.withdraw(*mapping, actor=None)
                self.stdout.write("The mapping has ended, with its rights.")
            case "adopt":
                from approvals.people import provisioning

                provisioning.adopt(options["name"], options["person"], options["user_name"])
                self.stdout.write(f"{options['person']} follows the directory {options['name']}.")
            case "list":
                for view in mappings.list_rights_of_sources(""):
                    self.stdout.write(f"{view.source}\tpeople: {view.people}")
                    for row, _ in view.mappings:
                        state = "confirmed" if row.confirmed_at else "waits"
                        self.stdout.write(f"\t{row.value}\t{row.right}\t{state}")
