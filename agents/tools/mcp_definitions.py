"""MCP servers, and the definitions of their tools: as a server gives them, and as a file keeps the accepted ones."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.errors import DefinitionError
from agents.tools.http_client import parse_site
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import hash_value, require_json
from runtime.network import is_public


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """Return the digest of name, description and schema. Raise NotJson."""
        return hash_value(self.as_json)

    @property
    def as_json(self) -> dict[str, Any]:
        """Return the definition as the file has it, with the names of the protocol."""
        return {"name": self.name, "description": self.description, "inputSchema": self.schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server: its URL, or the command that starts it.

    `values` are headers of requests to a URL, or variables for a command. `{name}` in one is a credential.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    values: Mapping[str, str]
    private: bool = False

    @property
    def label(self) -> str:
        """Return the name of the server for people."""
        return self.url or " ".join(self.command)


def parse_server(
    server: str | Sequence[str],
    *,
    headers: Mapping[str, str] | None,
    variables: Mapping[str, str] | None,
    private: bool,
) -> McpServer:
    """Return the server of a URL or a command. Raise DefinitionError."""
    if not isinstance(server, str):
        command = tuple(server)
        if not command or not all(isinstance(word, str) and word for word in command) or headers:
            raise DefinitionError("mcp_tools: a command is a list of words, and takes no headers")
        return McpServer(command=command, values=variables or {})
    try:
        parse_site(server)
    except ValueError as exc:
        raise DefinitionError(
            f"mcp_tools: {server!r}: {exc}; a command is a list of words"
        ) from exc
    if not private and _is_inside(urlsplit(server).hostname or ""):
        raise DefinitionError(
            f"mcp_tools: {server} is not a public address: allow it with private=True, or --private"
        )
    if variables:
        raise DefinitionError(f"mcp_tools: {server}: variables are for a command")
    return McpServer(url=server, values=headers or {}, private=private)


def _is_inside(host: str) -> bool:
    """Tell whether a host is known not to be public without asking for its address."""
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost"


def read_definitions(path: Path, label: str) -> dict[str, Definition]:
    """Return the accepted definitions by name. Raise DefinitionError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        require_json(document, "tools")
        rows = [
            Definition(name=row["name"], description=row["description"], schema=row["inputSchema"])
            for row in document["tools"]
        ]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, NotJson) as exc:
        raise DefinitionError(
            f"{label}: the definitions in {path} cannot be read ({type(exc).__name__}): write the file with"
            " `manage.py mcp_tools`"
        ) from exc
    return {row.name: row for row in rows}


def write_definitions(path: Path, definitions: Sequence[Definition]) -> None:
    """Write the file of accepted definitions."""
    rows = [row.as_json for row in sorted(definitions, key=lambda row: row.name)]
    text = json.dumps({"tools": rows}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
