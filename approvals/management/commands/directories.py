"""`manage.py directories …`: let directories provision people. The plain text of a new token is printed once."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

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
        match options["act"]:
            case "token":
                _, plain = directories.create_token(
                    options["name"], days=options["days"], actor=None
                )
                self.stdout.write(plain)
            case "revoke":
                directories.revoke_token(options["public_id"], actor=None)
                self.stdout.write(f"Token {options['public_id']} is revoked.")
            case "map":
                source, value, right = (options[name] for name in ("source", "value", "right"))
                terms = {(row.value, row.right): row for row in mappings.find_all(source)}
                proposed = terms.get((value, right))
                if proposed is not None and proposed.confirmed_at is not None:
                    raise CommandError("this is mapped already")
                if proposed is None:
                    mappings.propose(source, value, right, actor=None)
                mappings.confirm(source, value, right, actor=None)
                self.stdout.write(f"{value or 'each person'} of {source} has {right}.")
            case "unmap":
                names = [options[name] for name in ("source", "value", "right")]
                mappings.withdraw(*names, actor=None)
                self.stdout.write("The mapping has ended, with its rights.")
            case "adopt":
                from approvals.people import provisioning

                names = [options[name] for name in ("name", "person", "user_name")]
                provisioning.adopt(*names)
                self.stdout.write(f"{options['person']} follows the directory {options['name']}.")
            case "list":
                for view in mappings.views(""):
                    self.stdout.write(f"{view.source}\tpeople: {view.people}")
                    for mapping, _ in view.mappings:
                        state = "confirmed" if mapping.confirmed_at else "waits"
                        self.stdout.write(f"\t{mapping.value}\t{mapping.right}\t{state}")
