"""`manage.py triggers …`: make, show and change triggers and their webhooks as a person, and retry their events."""

from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.urls import reverse

from runtime.core.values.texts import write_on_one_line
from runtime.management.command import TriggerCommand, read_json
from runtime.ports.access import Actor
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes, webhooks
from runtime.triggers.listing import TriggerView
from runtime.triggers.signatures import Scheme


class Command(TriggerCommand):
    """Makes, lists and changes triggers."""

    help = "Work on triggers, their events and webhooks with the rights of a person."
    kind = TriggerKind.EVENT
    shows = "source, its webhook and its newest events"
    examples = """\
  triggers list --as ada
  triggers add --as ada '{"name": "Hires", "agent": "hr_onboarding", "event": "hired", "mapping": {}}'
  triggers pause 0192f1c2-… --as ada
  triggers retry 0192f1c2-… 17 --as ada
  triggers webhook 0192f1c2-… --as ada --scheme github
"""

    def add_own_acts(self, acts: Any) -> None:
        retry = self.add_act(
            acts, "retry", "handle an event again that started no run", of_one=True
        )
        retry.add_argument("number", type=int, help="of the event, as show writes it")
        webhook = self.add_act(acts, "webhook", "make its webhook, or another address", of_one=True)
        webhook.add_argument("--scheme", choices=[*Scheme], required=True, help="how it is signed")
        webhook.add_argument("--header", default="", metavar="NAME", help="of --scheme header")
        webhook.add_argument("--secret-file", metavar="FILE", help="without it a secret is made")
        self.add_act(acts, "remove-webhook", "remove its webhook", of_one=True)

    def add_definition(self, parser: CommandParser) -> None:
        parser.add_argument("definition", metavar="JSON", help="as the API accepts it")

    def read_definition(self, options: dict[str, Any]) -> dict[str, Any]:
        definition = read_json(options["definition"], "the definition")
        if not isinstance(definition, dict):
            raise CommandError("the definition is not a JSON object")
        return definition

    def list_columns(self, row: TriggerRow) -> tuple[str, ...]:
        return row.event, row.agent, row.name

    def act(self, act: str, id: UUID, actor: Actor, options: dict[str, Any]) -> str:
        match act:
            case "webhook":
                file, secret = options["secret_file"], ""
                if file is not None:
                    try:
                        secret = Path(file).read_text()
                    except (OSError, ValueError) as exc:
                        raise CommandError(f"--secret-file cannot be read: {exc}") from exc
                scheme, header = options["scheme"], options["header"]
                webhook = webhooks.make(
                    id=id, actor=actor, scheme=scheme, header=header, secret=secret
                )
                path = reverse("api:deliver_webhook", args=[webhook.address])
                return f"Path: {path}\nSecret: {webhook.secret}"
            case "remove-webhook":
                webhooks.remove(id=id, actor=actor)
            case _:
                changes.retry(id=id, number=options["number"], actor=actor)
        return f"Done: {act}"

    def show(self, view: TriggerView) -> None:
        """Write its state, source, webhook and newest events: a line each."""
        definition, source, webhook = view.definition, view.source, view.webhook
        state = view.problem or view.state
        self.stdout.write(f"{definition.name}\t{state}\t{definition.event}\t{definition.agent}")
        if source is not None:
            self.stdout.write(f"{source.kind}\t{source.place}\t{source.problem}".rstrip())
        if webhook is not None:
            refused = f"{webhook.refused} refused\t{webhook.refused_why}"
            self.stdout.write(f"webhook\t{webhook.scheme}\t{refused}")
        for row in view.history:
            words = (str(row.number), row.id or "", row.state, str(row.run or ""), row.reason)
            self.stdout.write("\t".join(map(write_on_one_line, words)).rstrip())
