"""Tools of MCP servers as tools of agents. See `agents.tools.mcp_client` for how they are called.

A file beside the author's module keeps the definitions that the author accepted: name, description and schema of each
tool. Their digest is part of the tool's schema, so with any other definition the agent is another version, and an
approval of a call does not apply. A server's hints, such as `readOnlyHint`, decide nothing here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from jsonschema import Draft202012Validator, SchemaError
from pydantic import AfterValidator, TypeAdapter
from pydantic_core import PydanticCustomError

from agents.credentials import Credential
from agents.errors import DefinitionError
from agents.sdk import ToolContext, mistakes, tool
from agents.sdk.signature import ToolSignature
from agents.sdk.spec import PIN, ToolSpec
from agents.tools.mcp_definitions import Definition, McpServer, parse_server, read_definitions
from runtime.core.values import json_schema
from runtime.core.values.json_values import hash_value
from runtime.core.values.texts import find_placeholders

DECLARED = ("effect", "approval", "risk")  # settings that the author states for each tool


@mistakes.record_mistakes
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
    mcp_tools` wrote, with the definitions that the author accepted. Before each call the worker compares the server's
    definition of the tool: if it is another one, nothing is sent and the agent is held.

    `tools` has the settings of `@tool` for each tool. `effect`, `approval` and `risk` must be among them: the
    server's hints decide nothing. `headers` go with each request to a URL, `variables` into the environment of a
    command; `{name}` in a value is replaced by that credential. The names of the tools begin with `prefix`. An
    address that is not public is refused, unless `private` is true. Each call has the idempotency key in its
    `_meta`, as `signoff/idempotency-key`. Raises DefinitionError if the definition is invalid.
    """
    described = parse_server(server, headers=headers, variables=variables, private=private)
    label = f"mcp_tools of {described.label}"
    try:
        placeholders = {
            name for text in described.values.values() for name in find_placeholders(text)
        }
    except (ValueError, TypeError, AttributeError) as exc:
        raise DefinitionError(f"{label}: headers and variables: {exc}") from exc
    if lacking := placeholders - {credential.name for credential in credentials}:
        raise DefinitionError(f"{label}: there is no credential {min(lacking)}")
    accepted = read_definitions(Path(definitions), label)
    unknown = sorted(tools.keys() - accepted.keys())
    if unknown or not tools:
        names = ", ".join(accepted) or "none"
        raise DefinitionError(
            f"{label}: tools names {unknown or 'none'}; {definitions} has {names}"
        )
    return tuple(
        _make_tool(described, accepted[name], settings, credentials, prefix)
        for name, settings in tools.items()
    )


def _make_tool(
    server: McpServer,
    definition: Definition,
    settings: Mapping[str, Any],
    credentials: Sequence[Credential],
    prefix: str,
) -> ToolSpec:
    name = prefix + re.sub(r"[^a-z0-9_]", "_", definition.name.lower())
    if missing := [setting for setting in DECLARED if setting not in settings]:
        raise DefinitionError(f"tool {name}: say its {', '.join(missing)}")
    signature = _build_signature(server, definition, f"tool {name}")

    async def call(context: ToolContext, /, **arguments: Any) -> Any:
        from agents.tools.mcp_client import call_tool  # the library takes long to import

        return await call_tool(server, definition, context, arguments)

    call.__name__, call.__doc__ = name, definition.description or definition.name
    required = filter(str.isidentifier, signature.schema["required"])
    words = ", ".join(f"{argument} {{{argument}}}" for argument in required)
    stated = {"sentence": f"Call {name} with {words}" if words else f"Call {name}", **settings}
    define: Callable[..., Any] = tool
    spec: ToolSpec = define(foreign_signature=signature, credentials=credentials, **stated)(call)
    return replace(spec, mcp_name=definition.name)


def _build_signature(server: McpServer, definition: Definition, label: str) -> ToolSignature:
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
    pin = hash_value({"server": server.label, "tool": definition.as_json})
    text = json.dumps(schema)

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        problems = json_schema.list_problems(text, arguments, "arguments")
        if problems:
            listed = "; ".join(f"{problem.field} {problem.detail}" for problem in problems)
            raise PydanticCustomError("json_schema", "{problems}", {"problems": listed})
        return arguments

    return ToolSignature(
        arguments=TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)]),
        schema={**schema, PIN: f"MCP tool {definition.name} of {server.label}, {pin}"},
        result=None,
        result_schema=None,
        defaults={name: rule.get("default") for name, rule in optional.items()},
        wants_context=True,
    )
