"""`manage.py promote_version`: make an earlier version the newest, to take a release back."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.catalogue import published


class Command(BaseCommand):
    """Promotes a published version."""

    help = "Make a version of an agent count as the newest, to take a release back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="AGENT")
        parser.add_argument(
            "fingerprint",
            metavar="FINGERPRINT",
            help="as the page of the agent shows it; its first letters are enough",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        agent: str = options["agent"]
        try:
            fingerprint = published.promote(agent, options["fingerprint"])
        except LookupError as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(f"{agent}: {fingerprint} counts as the newest.")
