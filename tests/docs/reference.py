"""`make reference`: writes the lists in docs/reference from the code.

Meanings are the comments beside the members of an enum, the first sentence of a docstring, or the help of a command.
"""

import inspect
import os
import re
import sys
from argparse import _SubParsersAction
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import django
from django.core.management import BaseCommand, CommandParser, load_command_class

from config.env.environment import ROOT

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from approvals.rights.principals import Scope  # noqa: E402 - settings come first
from approvals.rules.policy import Group  # noqa: E402
from config.api import api  # noqa: E402
from runtime.core.run.continuation import FrameState, RunStatus  # noqa: E402
from runtime.core.run.events import EVENT_TYPES  # noqa: E402
from runtime.core.values import enums  # noqa: E402
from runtime.core.values.budgets import Limit  # noqa: E402
from runtime.core.values.enums import CallState  # noqa: E402
from runtime.core.values.verdicts import VERDICTS_AT  # noqa: E402
from runtime.errors import RequestError  # noqa: E402
from tests.docs import guarantees, layers_picture  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
NOTE = "[//]: # (written by `make reference` from the code; do not edit)\n"
UNKNOWN = "…"  # a text that is known only when it is said
ROOMS = ("runtime", "approvals", "agents", "config")

ERROR = re.compile(
    r'\b(?:build_error\(\s*(\d+), |Forbidden\(\s*)"(\w+)",\s*(?:[^"\n]* or )?(?:f?"([^"\n]+)")?'
)
FOR_ADMINS = re.compile(r"\b[Ff]or (?:an )?admins?\b")
# Reasons of a 403 whose text depends on the person and the run.
DENIED = {
    "not_eligible": "The person does not have this right.",
    "scope": "The token lacks the scope, or the person the right of that name.",
    "requester": "The person started this run.",
    "origin": "The person is in this run's origin.",
    "given_by_origin": "A person in the run's origin gave this person the right to decide.",
    "step_up": "The policy asks for a second factor of the last 5 minutes, which a token does not have.",
    "cooling_off": "The right to decide is too new.",
    "tampered": "The stored request does not verify.",
}

Row = tuple[str, ...]


def lists() -> str:
    return _page(
        "Closed lists",
        "Tables and API answers hold no other values. `runtime/core/run/transitions.py` has the legal transitions.",
        _section("Run states", _members(RunStatus), "state"),
        _section("Frame states", _members(FrameState), "state"),
        _section("Call states", _members(CallState), "state"),
        _section("Gate kinds", _gates(), "kind", "verdicts"),
        _section("Verdicts", _members(enums.Verdict), "verdict"),
        _section("Effect classes", _members(enums.EffectClass), "class"),
        _section("Risks", _members(enums.Risk), "risk"),
        _section("Failure causes", _members(enums.FailureCause), "cause"),
        _section("Budget limits", _members(Limit), "limit"),
        _section("Groups", _members(Group), "group"),
        _section("Event types", _events(), "event"),
    )


def http_api() -> str:
    return _page(
        "HTTP API",
        "Every address begins with `/api/v1`. Send `Authorization: Bearer TOKEN`, and JSON. `/api/v1/docs` of an"
        " installation explains each operation, with its schemas (`GET /api/v1/openapi.json`). *POST cancel* of"
        " `/runs/{run}` is `POST /api/v1/runs/{run}/cancel`. \\* is for admins.\n\n"
        'An error is `{"code", "detail"}`, with `field` if one field is wrong, and with facts of its own such as'
        " `decided_by`. Send a request again after 503 and `Retry-After`.\n\n"
        "`/api/mcp/` is an MCP server (streamable HTTP, same tokens): assistants read requests and runs and start runs."
        " Decisions are off (`SIGNOFF_MCP_DECISIONS`). `/api/mcp/NAME/` is a gateway, with tasks. Versions:"
        " 2025-03-26 to 2025-11-25.",
        "## Operations\n",
        "\n".join(_operations()) + "\n",
        _section("Scopes of a token", _members(Scope), "scope"),
        _section("Error codes", _errors(), "code"),
    )


def commands() -> str:
    return _page(
        "Commands",
        'Beside `make up` write `make manage CMD="…"` with the same `HOME_DIR=`, in Compose'
        " `docker compose exec web python manage.py …`. `COMMAND --help` shows arguments and examples, `make help` the"
        " targets of make.",
        _section("manage.py", list(_commands()), "command"),
    )


PAGES: dict[str, Callable[[], str]] = {
    "lists.md": lists,
    "http-api.md": http_api,
    "commands.md": commands,
}


def write_all() -> None:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")
    guarantees.write_all()
    layers_picture.TARGET.write_text(layers_picture.draw(), encoding="utf-8")


# Parts of a page


def _page(title: str, intro: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n\n{NOTE}\n{intro}\n", *parts])


def _section(title: str, rows: Iterable[Row], *columns: str, text: str = "meaning") -> str:
    """Return a list of names with their meaning, or a table if there are more columns."""
    if len(columns) == 1:
        lines = [f"- {name}: {said}" for name, said in rows]
    else:
        head = [*columns, text]
        lines = [_line(head), "|" + "---|" * len(head), *map(_line, rows)]
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# Rows


def _members(members: type[StrEnum]) -> list[Row]:
    said = _comments(members)
    return [(f"`{member}`", said[member.name]) for member in members]


def _gates() -> list[Row]:
    said = _comments(enums.GateKind)
    return [(f"`{kind}`", ", ".join(VERDICTS_AT[kind]), said[kind.name]) for kind in enums.GateKind]


def _comments(members: type[StrEnum]) -> dict[str, str]:
    """Return the comment beside, or above, each member."""
    found, above = {}, ""
    for line in inspect.getsource(members).splitlines():
        if alone := re.fullmatch(r"\s+# (.+)", line):
            above = f"{above} {alone[1]}".strip()
        elif member := re.fullmatch(r"\s+([A-Z_]+) = [^#]+?(?:  # (.+))?", line):
            found[member[1]], above = member[2] or above, ""
    return found


def _events() -> list[Row]:
    return [(f"`{event.__name__}`", _first_sentence(event)) for event in EVENT_TYPES]


def _first_sentence(documented: object) -> str:
    return _up_to_a_stop(inspect.getdoc(documented) or "")


def _up_to_a_stop(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.match(r".*?[.:](?= [A-Z`]|$)", paragraph)
    return sentence[0] if sentence else paragraph


def _operations() -> Iterator[str]:
    """Yield each address with its operations, and with those of longer addresses of the same object."""
    paths = api.get_openapi_schema()["paths"]
    found: dict[str, list[str]] = {}
    for path, methods in paths.items():
        above = (other for other in paths if path.startswith(f"{other}/"))
        address = next((one for one in above if "{" not in path.removeprefix(one)), path)
        below = path.removeprefix(address).removeprefix("/")
        for method, operation in methods.items():
            star = "\\*" if FOR_ADMINS.search(operation["description"]) else ""
            found.setdefault(address, []).append(f"{method.upper()} {below}".strip() + star)
    for address, operations in found.items():
        yield f"- `{address.removeprefix('/api/v1')}`: {', '.join(operations)}"


def _errors() -> list[Row]:
    found: dict[tuple[str, str], str] = {}
    for code, status, detail in [*_written(), *_raised()]:
        if found.get((code, status), UNKNOWN) == UNKNOWN:
            found[code, status] = detail
    return [(f"`{code}` ({status})", detail) for (code, status), detail in sorted(found.items())]


def _raised() -> Iterator[Row]:
    for error in sorted(_subclasses(RequestError), key=lambda error: error.__name__):
        if "code" in vars(error):
            yield error.code, str(error.status), _first_sentence(error)


def _subclasses(error: type[RequestError]) -> Iterator[type[RequestError]]:
    for below in error.__subclasses__():
        yield below
        yield from _subclasses(below)


def _written() -> Iterator[Row]:
    """Yield the errors in calls of `error(status, "code", "detail")` and `Forbidden("code", "detail")`."""
    yield from ((code, "403", detail) for code, detail in DENIED.items())
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for status, code, detail in ERROR.findall(file.read_text("utf-8")):
                yield code, status or "403", re.sub(r"{.*?}", UNKNOWN, detail) or UNKNOWN


def _commands() -> Iterator[Row]:
    for file in sorted(ROOT.glob("*/management/commands/*.py"), key=lambda file: file.stem):
        if file.stem.startswith("_"):
            continue
        command = load_command_class(file.parents[2].name, file.stem)
        usage = ", ".join(filter(None, _usages(command)))
        yield f"`{file.stem} {usage}`".replace(" `", "`"), _up_to_a_stop(str(command.help))


def _usages(command: BaseCommand) -> list[str]:
    """Return the names of a command's subcommands, or its arguments without those of Django."""
    parser = CommandParser(prog="", add_help=False)
    command.add_arguments(parser)
    below = [one.choices for one in parser._actions if isinstance(one, _SubParsersAction)]
    return [*below[0]] if below else [" ".join(parser.format_usage().split()[1:])]


if __name__ == "__main__":
    write_all()
    sys.stdout.write(f"{', '.join(PAGES)} are in {REFERENCE.relative_to(ROOT)}/\n")
