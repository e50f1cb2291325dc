"""The command `signoff`. It reads the address from SIGNOFF_URL and tokens from variables or a file, never from words.

Exit status: 0 done · 1 refused, or no answer · 2 usage · 3 the run ended without a result · 4 not in time · 130 Ctrl-C.
`ask` ends with the status of the command that it ran, or 120 denied · 121 expired, cancelled, used · 122 no decision.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel

from signoff_client import gate
from signoff_client.aais import build_envelopes
from signoff_client.client import Signoff
from signoff_client.errors import NotApproved, NotInTime, NotThere, RunNotCompleted, SignoffError
from signoff_client.routes import Approval, Run

TOKEN = "SIGNOFF_TOKEN"  # noqa: S105 - the name of a variable
USAGE = 2
STATUSES: dict[type[Exception], int] = {
    RunNotCompleted: 3,
    NotInTime: 4,
    SignoffError: 1,
    ValueError: USAGE,
}
NOT_APPROVED = {"denied": 120, "expired": 121, "cancelled": 121, "consumed": 121}
NO_DECISION = 122

app = typer.Typer(
    help=f"Start runs of Signoff and decide requests.\n\n{(__doc__ or '').partition(chr(10) * 2)[2]}",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and one is a token
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for a confirmation.")]


@app.callback()
def connect(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(envvar=gate.URL, help="The address of Signoff.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help=f"Instead of {TOKEN}.")
    ] = None,
) -> None:
    """Remember where the server is."""
    context.obj = (url, token_file)


@app.command()
def start(
    context: typer.Context,
    agent: str,
    input: Annotated[str, typer.Option(help="JSON, or @FILE, or - for the standard input.")] = "{}",
    key: Annotated[str | None, typer.Option(help="The same key starts no second run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait at most.")] = None,
    as_json: Json = False,
) -> None:
    """Start a run, and print its id; with --wait print its result, and its progress as an error output."""
    document = parse_json(input, "--input")
    with open_client(context) as signoff:
        run = signoff.start(agent, document, business_key=key)
        if not wait:
            show_value(run, as_json, str(run.id))
            return
        run = signoff.wait(run.id, seconds=timeout, on_change=tell_progress)
        result = run.result(object)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        show_value(run, as_json, text)


@app.command("list")
def list_rows(
    context: typer.Context,
    runs: Annotated[bool, typer.Option("--runs", help="Runs, the newest first.")] = False,
    status: Annotated[str, typer.Option(help="Of the requests; 'any' for all.")] = "pending",
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List the requests that wait, the oldest first, or runs."""
    with open_client(context) as signoff:
        if runs:
            items: list[Any] = list(signoff.list_runs(limit=limit).items)
            lines = [f"{run.id}  {run.status:12} {run.agent}" for run in items]
        else:
            page = signoff.list_approvals(status=None if status == "any" else status, limit=limit)
            items = list(page.items)
            lines = [
                f"{item.id}  {item.status:9} {item.risk:6} {item.sentence or item.kind}"
                for item in items
            ]
    if as_json:
        typer.echo(json.dumps([item.model_dump(mode="json") for item in items]))
    else:
        tell(lines)


@app.command()
def show(context: typer.Context, id: str, as_json: Json = False) -> None:
    """Show a request or a run."""
    with open_client(context) as signoff:
        show_value(read(signoff, id), as_json)


@app.command()
def decide(
    context: typer.Context,
    approval: str,
    verdict: Annotated[
        str, typer.Argument(help="approve, deny, request_changes, answer, edit, continue, stop …")
    ],
    reason: Annotated[str, typer.Option(help="A denial needs one.")] = "",
    digest: Annotated[
        str | None,
        typer.Option(help="Of the request that you have read; without it you are asked."),
    ] = None,
    confirm: Annotated[str | None, typer.Option(help="The name to repeat at high risk.")] = None,
    result: Annotated[str | None, typer.Option(help="JSON: the result of an answer.")] = None,
    arguments: Annotated[str | None, typer.Option(help="JSON: all arguments of an edit.")] = None,
    grant: Annotated[str | None, typer.Option(help="JSON: the increase of each limit.")] = None,
    as_json: Json = False,
) -> None:
    """Decide a request, as the person whose token it is. The server refuses it if the request has changed."""
    texts = {"result": result, "arguments": arguments, "grant": grant}
    fields: Any = {
        name: parse_json(text, f"--{name}") for name, text in texts.items() if text is not None
    }
    if confirm is not None:
        fields["confirm"] = confirm
    with open_client(context) as signoff:
        request = signoff.read_approval(approval)
        if digest is not None:
            request = request.model_copy(update={"digest": digest})
        elif sys.stdin.isatty():
            show_value(request, False)
            if request.confirm is not None and confirm is None and verdict in ("approve", "edit"):
                fields["confirm"] = typer.prompt(f"Type {request.confirm} to {verdict}", err=True)
            else:
                typer.confirm(f"{verdict}?", abort=True, err=True)
        else:
            stop(
                "without a terminal --digest is needed: that of the request that you have read",
                USAGE,
            )
        decided = signoff.decide(request, verdict, reason=reason, **fields)
        show_value(decided, as_json, f"{decided.status} by {decided.decided_by}")


@app.command()
def tail(
    context: typer.Context,
    run: str,
    after: Annotated[int, typer.Option(min=0, help="The position of the last known entry.")] = 0,
    as_json: Json = False,
) -> None:
    """Print the journal of a run as it grows, until the run ends."""
    with open_client(context) as signoff:
        for entry in signoff.tail(run, after=after):
            events = ", ".join(str(event.get("type", "?")) for event in entry.events)
            line = entry.model_dump_json() if as_json else f"{entry.position:5} {entry.at} {events}"
            tell([line])


@app.command()
def export(
    context: typer.Context,
    id: str,
    aais: Annotated[
        bool, typer.Option("--aais", help="A request as envelopes of AAIS 1.0, one on a line.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    yes: Yes = False,
) -> None:
    """End a run here, and write its signed file for another installation; or write a request, which changes nothing."""
    with open_client(context) as signoff:
        if aais:
            envelopes = build_envelopes(signoff.read_approval(id))
            content = "".join(json.dumps(envelope) + "\n" for envelope in envelopes).encode()
        else:
            if not yes:
                typer.confirm(
                    "The run ends here, and can go on elsewhere. Export?", abort=True, err=True
                )
            content = signoff.export(id)
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        output.write_bytes(content)


@app.command()
def ask(
    context: typer.Context,
    tool: Annotated[str, typer.Option(help="The name of the act.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="The command to run, after --.")
    ] = None,
    arg: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT or NAME:=JSON, shown to the reviewer.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why it should be done.")] = None,
    risk: Annotated[str | None, typer.Option(help="Your claim: low, medium or high.")] = None,
    timeout: Annotated[
        str, typer.Option(help="How long to wait, such as 90s, 10m or 24h.")
    ] = "24h",
    key: Annotated[
        str | None, typer.Option(help="The same key and words ask no second time, and run once.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Wait until a person decides; then run the command, once and only if it was approved, and report its outcome.

    The credential of an instance is in SIGNOFF_INSTANCE_TOKEN. The reviewer sees the command as an argument.
    """
    if command and shutil.which(command[0]) is None:
        stop(f"there is no program {command[0]}", 127)
    arguments = gate.read_arguments(arg or [], command or [])
    claims = {"risk": risk} if risk else {}
    call = gate.make_call(tool, arguments, claims, key=key, reasoning=reason)
    try:
        request, status = gate.ask(
            context.obj[0],
            call,
            timeout=timeout,
            command=command or [],
            tell=lambda text: tell([text], err=True),
        )
    except NotApproved as exc:
        if as_json:
            typer.echo(json.dumps({"request": exc.request_id, "status": exc.status}))
        raise
    if as_json:
        typer.echo(json.dumps({"request": request, "status": "approved", "exit": status}))
    raise typer.Exit(status)


def main() -> None:
    """Run the command; one line and a status for each kind of error."""
    try:
        app(prog_name="signoff")
    except NotApproved as exc:
        stop(str(exc), NOT_APPROVED.get(exc.status, NO_DECISION))
    except tuple(STATUSES) as exc:
        stop(str(exc), next(STATUSES[kind] for kind in STATUSES if isinstance(exc, kind)))


def open_client(context: typer.Context) -> Signoff:
    """Return the client of the person whose token is given."""
    url, token_file = context.obj
    if not url:
        stop(f"{gate.URL} is not set: the address of Signoff", USAGE)
    token = token_file.read_text() if token_file else os.environ.get(TOKEN, "")
    if not token:
        stop(f"{TOKEN} is not set: a token of yours, or name its file with --token-file", USAGE)
    return Signoff(url, token.strip())


def read(signoff: Signoff, id: str) -> Approval | Run:
    """Return the request of this id, or the run."""
    try:
        return signoff.read_approval(id)
    except NotThere:
        return signoff.read_run(id)


def show_value(value: BaseModel, as_json: bool, text: str | None = None) -> None:
    """Print the value as JSON, or this text, or a line for each field."""
    if as_json:
        typer.echo(value.model_dump_json())
    elif text is not None:
        tell([text])
    else:
        fields = value.model_dump(mode="json")
        tell(
            f"{name + ':':14} {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}"
            for name, item in fields.items()
            if item not in (None, [], "")
        )


def tell_progress(run: Run) -> None:
    """Say on the error output where the run is."""
    gates = ", ".join(f"{gate.tool or gate.kind} (request {gate.approval})" for gate in run.gates)
    text = run.status_text or (f"waits for a person: {gates}" if gates else "")
    tell([f"{run.status}{': ' if text else ''}{text}"], err=True)


def tell(lines: Iterable[str], err: bool = False) -> None:
    """Print lines. Characters that could steer a terminal, or reorder its text, become escapes."""
    for line in lines:
        safe = "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in line
        )
        typer.echo(safe, err=err)


def parse_json(text: str, option: str) -> Any:
    """Return the value of an option that is JSON, @FILE or -."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text()
    try:
        return json.loads(text)
    except ValueError as exc:
        raise ValueError(f"{option} is not JSON: {exc}") from None


def stop(text: str, status: int) -> NoReturn:
    """Say why on the error output, and end."""
    tell([f"signoff: {text}"], err=True)
    raise SystemExit(status)
