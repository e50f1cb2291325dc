"""`manage.py agents check`: print the configured agents and every mistake in their modules."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from agents.registry import Survey, survey

MAX_IMPORT_SECONDS = 30.0  # for the modules of agents


class Command(BaseCommand):
    """Lists the configured agents, and every mistake in their modules."""

    help = (
        "List the agents of ABEYANCE_AGENTS with tools, effect classes and gates, and every mistake in them."
        " Ends with 1 if there is one."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        check = acts.add_parser("check", help="load them once and list their mistakes")
        check.add_argument("--brief", action="store_true", help="only the first mistake, in a line")

    def handle(self, *args: Any, **options: Any) -> None:
        with _no_longer_than(MAX_IMPORT_SECONDS):
            found = survey(settings.ABEYANCE_AGENTS, settings.AGENTS_DIR)
        if options["brief"]:
            _end([*map(str, found.mistakes)] or _missing(found))
            return
        from agents.management import listing

        mistakes = [*map(str, found.mistakes), *_missing(found)]
        counted = [(len(found.registry.agents), "agent"), (len(mistakes), "mistake")]
        for line in (*listing.lines(found.sources), *mistakes, _counted(*counted)):
            self.stdout.write(line)
        if mistakes:
            raise SystemExit(1)


def _end(mistakes: list[str]) -> None:
    if mistakes:
        others = len(mistakes) - 1
        more = f" ({others} more: make agents lists all)" if others else ""
        raise SystemExit(f"abeyance: {mistakes[0]}{more}")


def _missing(found: Survey) -> list[str]:
    """List the settings that agents lack."""
    if not found.registry.agents and not found.mistakes:
        return ["no agents are configured: name their modules in ABEYANCE_AGENTS"]
    # Importing the model layer takes a third of the start; mistakes in modules are reported without it.
    from agents.llm.providers import lacking

    return [*lacking(found.registry)]


def _counted(*things: tuple[int, str]) -> str:
    return ", ".join(
        f"{number or 'no'} {what}{'' if number == 1 else 's'}" for number, what in things
    )


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Interrupt an import that takes longer, at its present line."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"its import has not ended after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
