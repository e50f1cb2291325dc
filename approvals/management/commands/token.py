"""`manage.py token …`: manage API tokens. The plain text of a new token is printed once."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from approvals.management import command
from approvals.people import account_list, accounts, tokens
from approvals.rights.principals import ALL_SCOPES


class Command(command.Command):
    """Creates, revokes and lists tokens."""

    help = "Make tokens for the API, revoke them, list them."
    examples = """\
  token create ada --scope runs:start --scope runs:read --name reports --days 90
  token create ada --all                         every scope; rights are still those of ada's groups
  token revoke 0123456789abcdef                  by its public id
  token list ada
"""

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        create = acts.add_parser("create", help="print a new token, once")
        create.add_argument("name", metavar="NAME")
        create.add_argument("--name", dest="label", default="", metavar="TEXT", help="its purpose")
        create.add_argument("--days", type=int, metavar="DAYS", help="until it expires; else never")
        scopes = create.add_mutually_exclusive_group(required=True)
        scopes.add_argument("--scope", action="append", default=[], choices=sorted(ALL_SCOPES))
        scopes.add_argument("--all", action="store_true", help="every scope")
        revoke = acts.add_parser("revoke", help="end a token for good")
        revoke.add_argument("public_id", metavar="PUBLIC_ID", help="the part after sgn_")
        listed = acts.add_parser("list", help="the tokens of one person or of all people")
        listed.add_argument("name", metavar="NAME", nargs="?")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["act"]:
            case "create":
                owner = accounts.read_person(options["name"])
                scopes = ALL_SCOPES if options["all"] else options["scope"]
                _, plain = tokens.create(owner, scopes, name=options["label"], days=options["days"])
                self.stdout.write(plain)
            case "revoke":
                if options["public_id"].count("_") > 1:
                    raise CommandError(
                        "give the public id alone: the part between sgn_ and the next _"
                    )
                token = tokens.revoke(options["public_id"].removeprefix("sgn_"), actor=None)
                self.stdout.write(f"Token {token.public_id} of {token.owner.username} is revoked.")
            case "list":
                name = options["name"]
                people = (
                    account_list.list_people() if name is None else [account_list.read_person(name)]
                )
                for person in people:
                    for row in person.tokens:
                        state = (
                            "revoked" if row.revoked_at else "valid" if row.is_valid else "expired"
                        )
                        at = row.last_used_at
                        used = f"{at:%Y-%m-%d %H:%M} UTC" if at else "never"
                        self.stdout.write(
                            f"{row.public_id}\t{person.username}\t{state}"
                            f"\tlast used: {used}\t{' '.join(row.scopes)}"
                        )
