"""Tools of MCP servers as tools of agents. See `agents.tools.mcp_client` for how they are called.

A file beside the author's module keeps the definitions that the author accepted: name, description and schema of each
tool. Their digest is part of the tool's schema, so with any other definition the agent is another version, and an
approval of a call does not apply. What a server says about its tools, such as `readOnlyHint`, decides nothing here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from jsonschema import Draft202012Validator, SchemaError
from pydantic import AfterValidator, TypeAdapter
from pydantic_core import PydanticCustomError

from agents.credentials.providers import Credential
from agents.errors import DefinitionError
from agents.sdk import ToolContext, mistakes, tool
from agents.sdk.signature import ToolSignature
from agents.sdk.spec import PIN, ToolSpec
from agents.tools.http_client import site_of
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json, sha256_of
from runtime.core.values.texts import find_placeholders

DECLARED = ("effect", "approval", "risk")  # settings that the author states for each tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """Return the digest of name, description and schema. Raise NotJson."""
        return sha256_of(self.as_json)

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
        """Return what people call the server."""
        return self.url or " ".join(self.command)


@mistakes.recording
def mcp_tools(
    server: str | Sequence[str],
    definitions: str | Path,
    *,
    tools: Mapping[str, Mapping[str, Any]],
    headers: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    credentials: Sequence[Credential] = (),
    prefix: str = "",
    private: bool = False,
) -> tuple[ToolSpec, ...]:
    """Make tools of those tools of an MCP server that are named in `tools`.

    `server` is a URL (streamable HTTP) or the words of a command (stdio). `definitions` is the file that `manage.py
    agents mcp` wrote, with the definitions that the author accepted. Before each call the worker compares the server's
    definition of the tool: if it is another one, nothing is sent and the agent is held.

    `tools` has the settings of `@tool` for each tool. `effect`, `approval` and `risk` must be among them, whatever
    the server's hints say. `headers` go with each request to a URL, `variables` into the environment of a command;
    `{name}` in a value is replaced by that credential. The names of the tools begin with `prefix`. An address that is
    not public is refused, unless `private` is true. Each call has the idempotency key in its `_meta`, as
    `signoff/idempotency-key`. Raises DefinitionError if the definition is invalid.
    """
    described = server_of(server, headers=headers, variables=variables, private=private)
    label = f"mcp_tools of {described.label}"
    _require_credentials(described, credentials, label)
    accepted = read_definitions(Path(definitions), label)
    unknown = sorted(tools.keys() - accepted.keys())
    if unknown or not tools:
        names = ", ".join(accepted) or "none"
        raise DefinitionError(
            f"{label}: tools names {unknown or 'none'}; {definitions} has {names}"
        )
    return tuple(
        _tool(described, accepted[name], settings, credentials, prefix)
        for name, settings in tools.items()
    )


def server_of(
    server: str | Sequence[str],
    *,
    headers: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    private: bool = False,
) -> McpServer:
    """Return the server of a URL or a command. Raise DefinitionError."""
    if not isinstance(server, str):
        command = tuple(server)
        if not command or not all(isinstance(word, str) and word for word in command) or headers:
            raise DefinitionError("mcp_tools: a command is a list of words, and takes no headers")
        return McpServer(command=command, values=variables or {})
    try:
        site_of(server)
    except ValueError as exc:
        raise DefinitionError(
            f"mcp_tools: {server!r}: {exc}; a command is a list of words"
        ) from exc
    if variables:
        raise DefinitionError(f"mcp_tools: {server}: variables are for a command")
    return McpServer(url=server, values=headers or {}, private=private)


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
            " `manage.py agents mcp`"
        ) from exc
    return {row.name: row for row in rows}


def write_definitions(path: Path, definitions: Sequence[Definition]) -> None:
    """Write the file of accepted definitions."""
    rows = [row.as_json for row in sorted(definitions, key=lambda row: row.name)]
    text = json.dumps({"tools": rows}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _require_credentials(server: McpServer, credentials: Sequence[Credential], label: str) -> None:
    try:
        names = {name for text in server.values.values() for name in find_placeholders(text)}
    except (ValueError, TypeError, AttributeError) as exc:
        raise DefinitionError(f"{label}: headers and variables: {exc}") from exc
    if unknown := names - {credential.name for credential in credentials}:
        raise DefinitionError(f"{label}: there is no credential {min(unknown)}")


def _tool(
    server: McpServer,
    definition: Definition,
    settings: Mapping[str, Any],
    credentials: Sequence[Credential],
    prefix: str,
) -> ToolSpec:
    name = prefix + re.sub(r"[^a-z0-9_]", "_", definition.name.lower())
    if missing := [setting for setting in DECLARED if setting not in settings]:
        raise DefinitionError(f"tool {name}: say its {', '.join(missing)}")
    signature = _signature(server, definition, f"tool {name}")

    async def call(context: ToolContext, /, **arguments: Any) -> Any:
        from agents.tools.mcp_client import call_tool  # the library takes long to import

        return await call_tool(server, definition, context, arguments)

    call.__name__, call.__doc__ = name, definition.description or definition.name
    words = [
        f"{argument} {{{argument}}}"
        for argument in signature.schema["required"]
        if argument.isidentifier()
    ]
    define: Callable[..., Any] = tool
    spec: ToolSpec = define(
        signature=signature,
        credentials=credentials,
        **{
            "sentence": " ".join([f"Call {name}", *(["with", ", ".join(words)] if words else [])]),
            **settings,
        },
    )(call)
    return spec


def _signature(server: McpServer, definition: Definition, label: str) -> ToolSignature:
    schema = {"properties": {}, "required": [], **definition.schema}
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        raise DefinitionError(f"{label}: its input schema is invalid: {exc.message}") from exc
    properties = schema["properties"]
    if schema.get("type") != "object" or not all(
        isinstance(rule, dict) for rule in properties.values()
    ):
        raise DefinitionError(f"{label}: its input schema is not that of an object")
    optional = {name: rule for name, rule in properties.items() if name not in schema["required"]}
    pin = sha256_of({"server": server.label, "tool": definition.as_json})
    return ToolSignature(
        arguments=_arguments(schema),
        schema={**schema, PIN: f"MCP tool {definition.name} of {server.label}, {pin}"},
        result=None,
        result_schema=None,
        defaults={name: rule.get("default") for name, rule in optional.items()},
        wants_context=True,
    )


def _arguments(schema: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
    text = json.dumps(schema)

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        problems = json_schema.problems(text, arguments, "arguments")
        if problems:
            listed = "; ".join(f"{problem.field} {problem.detail}" for problem in problems)
            raise PydanticCustomError("json_schema", "{problems}", {"problems": listed})
        return arguments

    return TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)])
