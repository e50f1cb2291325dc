"""`manage.py mcp_tools FILE URL` shows how the tools of an MCP server differ from the accepted ones in a file."""

import asyncio
import json
import os
from argparse import REMAINDER
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import AgentsError
from agents.tools.mcp_definitions import (
    Definition,
    parse_server,
    read_definitions,
    write_definitions,
)
from runtime.core.values.texts import write_on_one_line

SECONDS = 30.0


class Command(BaseCommand):
    """Shows how the tools of an MCP server changed, with settings to consider, and accepts them with `--accept`."""

    help = "Show how the tools of an MCP server differ from the accepted ones in a file."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("file", type=Path, help="the file that mcp_tools(…) names")
        add(
            "server",
            nargs=REMAINDER,
            help="a URL, or the words of a command; last, after all options",
        )
        add("--accept", action="store_true", help="write the server's present definitions")
        add("--private", action="store_true", help="the address may be a private one")
        add(
            "--secret",
            action="append",
            default=[],
            metavar="NAME=VARIABLE",
            help="a header of a URL, or a variable of a command, from a variable of this environment",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        words, path = options["server"], options["file"]
        if not words:
            raise CommandError("name the server: a URL, or the words of a command")
        is_url = len(words) == 1 and words[0].startswith(("http://", "https://"))
        values = {}
        for pair in options["secret"]:
            name, _, variable = pair.partition("=")
            if not (name and variable in os.environ):
                raise CommandError(f"--secret {pair}: the environment has no such variable")
            values[name] = os.environ[variable].replace("{", "{{").replace("}", "}}")
        try:
            server = parse_server(
                words[0] if is_url else words,
                headers=values if is_url else None,
                variables=None if is_url else values,
                private=options["private"],
            )
            accepted = read_definitions(path, "mcp_tools") if path.exists() else {}
            from agents.tools.mcp_client import list_definitions  # takes long to import

            offered = asyncio.run(list_definitions(server, {}, SECONDS))
        except AgentsError as exc:
            raise CommandError(write_on_one_line(str(exc))) from exc
        for line in describe(accepted, offered):
            self.stdout.write(write_on_one_line(line))
        if options["accept"]:
            write_definitions(path, [definition for definition, _ in offered])
            self.stdout.write(f"Accepted in {path}. Start the workers again.")


def describe(
    accepted: Mapping[str, Definition], offered: Sequence[tuple[Definition, Mapping[str, bool]]]
) -> Iterator[str]:
    """Say for each tool whether it is new, changed or gone, and what its hints suggest."""
    names = {definition.name for definition, _ in offered}
    for definition, hints in offered:
        before = accepted.get(definition.name)
        if before is not None and before.digest == definition.digest:
            yield f"{definition.name}: as accepted"
            continue
        yield f"{definition.name}: {'new' if before is None else 'CHANGED'}"
        for key, value in definition.as_json.items():
            old = None if before is None else before.as_json[key]
            if key != "name" and old != value:
                yield from ([] if before is None else [f"  {key} before: {json.dumps(old)}"])
                yield f"  {key}: {json.dumps(value)}"
        yield f"  its hints suggest: {json.dumps(definition.name)}: {suggest(hints)},"
    for name in sorted(accepted.keys() - names):
        yield f"{name}: GONE"


def suggest(hints: Mapping[str, bool]) -> dict[str, Any]:
    """Return settings to consider. A server may give any hint, so its author decides."""
    if hints.get("readOnlyHint"):
        return {"effect": "read", "approval": False, "risk": "low"}
    effect = "idempotent" if hints.get("idempotentHint") else "write"
    risk = "medium" if hints.get("destructiveHint") is False else "high"
    return {"effect": effect, "approval": True, "risk": risk}
