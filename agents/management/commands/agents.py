"""`manage.py agents check` lists the configured agents and every mistake in them; `agents new` writes one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import DefinitionError
from agents.management import new_agent
from agents.registry import Survey, survey

MAX_IMPORT_SECONDS = 30.0  # for the modules of agents


class Command(BaseCommand):
    """Lists the configured agents with every mistake in their modules, or writes the files of a new one."""

    help = (
        "List the agents of SIGNOFF_AGENTS and every mistake in them, or write a new agent. Ends with 1 if there is"
        " a mistake."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        check = acts.add_parser("check", help="load them once and list their mistakes")
        check.add_argument("--brief", action="store_true", help="only the first mistake, in a line")
        new = acts.add_parser("new", help="write a working agent with a gate, and its test")
        new.add_argument("name", help="lower case letters, digits and _, such as refunds")
        new.add_argument("--folder", type=Path, help="where to write it; the default is AGENTS_DIR")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "new":
            self._write(options["name"], options["folder"])
            return
        with _no_longer_than(MAX_IMPORT_SECONDS):
            loaded = survey(settings.SIGNOFF_AGENTS, settings.AGENTS_DIR)
        if options["brief"]:
            _end([*map(str, loaded.mistakes)] or _missing(loaded))
            return
        from agents.management import listing

        mistakes = [*map(str, loaded.mistakes), *_missing(loaded)]
        counted = [(len(loaded.registry.agents), "agent"), (len(mistakes), "mistake")]
        for line in (*listing.lines(loaded.sources), *mistakes, _format_counts(*counted)):
            self.stdout.write(line)
        if mistakes:
            raise SystemExit(1)

    def _write(self, name: str, folder: Path | None) -> None:
        target = folder or (Path(settings.AGENTS_DIR) if settings.AGENTS_DIR else None)
        if target is None:
            raise CommandError("say where to write it: AGENTS_DIR=~/my-agents or --folder")
        try:
            written = new_agent.write(name, target.expanduser().absolute())
        except (DefinitionError, OSError) as exc:
            raise CommandError(str(exc)) from exc
        for path in written:
            self.stdout.write(str(path))
        self.stdout.write(
            f"Try it: make test TESTS={written[1]}\n"
            f"Run it: make up AGENTS_DIR={written[0].parent} SIGNOFF_AGENTS={name}"
        )


def _end(mistakes: list[str]) -> None:
    if mistakes:
        remaining = len(mistakes) - 1
        suffix = f" ({remaining} more: make agents lists all)" if remaining else ""
        raise SystemExit(f"signoff: {mistakes[0]}{suffix}")


def _missing(loaded: Survey) -> list[str]:
    """List the settings that agents lack."""
    if not loaded.registry.agents and not loaded.mistakes:
        return ["no agents are configured: name their modules in SIGNOFF_AGENTS"]
    # Importing the model layer takes a third of the start; mistakes in modules are reported without it.
    from agents.llm.providers import lacking

    return [*lacking(loaded.registry)]


def _format_counts(*counts: tuple[int, str]) -> str:
    return ", ".join(
        f"{number or 'no'} {noun}{'' if number == 1 else 's'}" for number, noun in counts
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
