"""`manage.py triggers …`: make, show and change triggers and their webhooks as a person, and retry their events."""

import json
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from runtime.core.invisible import on_one_line
from runtime.errors import InvalidInput, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.triggers.events import changes, listing
from runtime.triggers.events.listing import TriggerView
from runtime.triggers.webhooks import changes as webhook_changes
from runtime.triggers.webhooks.signatures import Scheme

EXAMPLES = """\
  triggers list --as ada
  triggers add --as ada '{"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": {}}'
  triggers pause 0192f1c2-… --as ada
  triggers retry 0192f1c2-… 17 --as ada
  triggers webhook 0192f1c2-… --as ada --scheme github
"""
ACTS = {"pause": changes.pause, "resume": changes.resume, "end": changes.end}


class Command(BaseCommand):
    """Makes, lists and changes triggers."""

    help = "Work on triggers, their events and webhooks with the rights of a person."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        _parser(acts, "list", "list the triggers that the person may read")
        add = _parser(acts, "add", "make a trigger that the person owns")
        add.add_argument("definition", metavar="JSON", help="as the API accepts it")
        _parser(acts, "show", "show its source, its webhook and its newest events", trigger=True)
        change = _parser(acts, "change", "replace all that it says", trigger=True)
        change.add_argument("definition", metavar="JSON", help="as the API accepts it")
        for act in ACTS:
            _parser(acts, act, f"{act} a trigger", trigger=True)
        retry = _parser(acts, "retry", "handle an event again that started no run", trigger=True)
        retry.add_argument("number", type=int, help="of the event, as show writes it")
        hook = _parser(acts, "webhook", "make its webhook, or another address", trigger=True)
        hook.add_argument("--scheme", choices=[*Scheme], required=True, help="how it is signed")
        hook.add_argument("--header", default="", metavar="NAME", help="of --scheme header")
        hook.add_argument("--secret-file", metavar="FILE", help="without it a secret is made")
        _parser(acts, "remove-webhook", "remove its webhook", trigger=True)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._act(options["act"], Actor(person=options["actor"]), options)
        except InvalidInput as problem:
            raise CommandError(problem.all_of_it) from problem
        except (RequestError, RuntimeFault) as problem:
            raise CommandError(str(problem)) from problem

    def _act(self, act: str, actor: Actor, options: dict[str, Any]) -> None:
        match act:
            case "list":
                rows, cut = listing.rows(actor)
                for row in rows:
                    state = row.problem or row.state
                    words = (str(row.id), state, row.event, row.agent, row.name)
                    self.stdout.write("\t".join(words))
                if cut:
                    self.stderr.write(f"Only {len(rows)} triggers are listed.")
            case "add":
                trigger_id = changes.create(sent=_definition(options["definition"]), actor=actor)
                self.stdout.write(f"Made: {trigger_id}")
            case "show":
                self._show(listing.one(_id(options), actor))
            case "change":
                sent = _definition(options["definition"])
                changes.change(id=_id(options), sent=sent, actor=actor)
                self.stdout.write("Done: change")
            case "webhook":
                self._make_webhook(options, actor)
            case "remove-webhook":
                webhook_changes.remove(id=_id(options), actor=actor)
                self.stdout.write("Done: remove-webhook")
            case "retry":
                changes.retry(id=_id(options), number=options["number"], actor=actor)
                self.stdout.write("Done: retry")
            case _:
                ACTS[act](id=_id(options), actor=actor)
                self.stdout.write(f"Done: {act}")

    def _show(self, trigger: TriggerView) -> None:
        """Write its state, source, webhook and newest events: a line each."""
        definition, source, hook = trigger.definition, trigger.source, trigger.webhook
        self.stdout.write(
            f"{definition.name}\t{trigger.problem or trigger.status}\t{definition.event}\t{definition.agent}"
        )
        if source is not None:
            self.stdout.write(f"{source.kind}\t{source.place}\t{source.problem}".rstrip())
        if hook is not None:
            self.stdout.write(f"webhook\t{hook.scheme}\t{hook.refused} refused\t{hook.refused_why}")
        for row in trigger.history:
            words = (str(row.number), row.id or "", row.state, str(row.run or ""), row.reason)
            self.stdout.write("\t".join(map(on_one_line, words)).rstrip())

    def _make_webhook(self, options: dict[str, Any], actor: Actor) -> None:
        file, secret = options["secret_file"], ""
        if file is not None:
            try:
                secret = Path(file).read_text()
            except (OSError, ValueError) as exc:
                raise CommandError(f"--secret-file cannot be read: {exc}") from exc
        fields = {"scheme": options["scheme"], "header": options["header"], "secret": secret}
        webhook = webhook_changes.make(id=_id(options), actor=actor, **fields)
        self.stdout.write(f"Path: {reverse('api:deliver', args=[webhook.address])}")
        self.stdout.write(f"Secret: {webhook.secret}")


def _parser(acts: Any, name: str, text: str, *, trigger: bool = False) -> CommandParser:
    parser: CommandParser = acts.add_parser(name, help=text)
    if trigger:
        parser.add_argument("trigger", metavar="ID")
    parser.add_argument(
        "--as", dest="actor", required=True, metavar="NAME", help="who does it, with their rights"
    )
    return parser


def _id(options: dict[str, Any]) -> UUID:
    try:
        return UUID(str(options["trigger"]))
    except ValueError as exc:
        raise CommandError(f"{options['trigger']!r} is not the id of a trigger") from exc


def _definition(text: str) -> dict[str, Any]:
    try:
        definition = json.loads(text)
    except ValueError as exc:
        raise CommandError(f"the definition is not JSON: {exc}") from exc
    if not isinstance(definition, dict):
        raise CommandError("the definition is not a JSON object")
    return definition
