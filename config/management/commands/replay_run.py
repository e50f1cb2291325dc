"""`manage.py replay_run`: say at which steps a recorded run would go another way with the current agents."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import RegistryError
from agents.external_agent import with_external_agent
from agents.registry import load
from approvals.governance.prompt_versions import StoredPrompts
from runtime.core.values.texts import write_on_one_line
from runtime.errors import RuntimeFault
from runtime.management.command import parse_run_id
from runtime.models import Run
from runtime.ports import wiring
from runtime.store import pool


class Command(BaseCommand):
    """Replays one run and prints where it diverges."""

    help = (
        "Replay a recorded run with the current agents and policy, without any effect, and print each step that"
        " would differ. End with 1 if there is any. Scripts are asked again; replies of models stand."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=parse_run_id, metavar="RUN", help="its id")

    def handle(self, *args: Any, **options: Any) -> None:
        from agents.effect_handler import AgentEffects
        from runtime.execution.jobs.replays import replay

        if not Run.objects.filter(id=options["run"]).exists():
            raise CommandError(f"there is no run {options['run']}")
        try:
            registry = with_external_agent(load(settings.SIGNOFF_AGENTS, settings.AGENTS_DIR))
            handler = AgentEffects(registry, prompts=StoredPrompts())
            result = replay(
                pool.join_transaction,
                options["run"],
                handler=handler,
                approvals=wiring.resolve_approvals(),
                is_scripted=handler.is_scripted,
            )
        except (RegistryError, RuntimeFault) as exc:
            raise CommandError(str(exc)) from exc
        if not result.compared:
            raise CommandError(f"nothing of the run {options['run']} is left to compare")
        if result.begins > 1:
            self.stdout.write(f"History before entry {result.begins} was removed: not compared")
        for divergence in result.divergences:
            # An agent's words could move the cursor, or imitate the lines below.
            self.stdout.write(
                write_on_one_line(f"Entry {divergence.position}, {' › '.join(divergence.path)}")
            )
            self.stdout.write(f"  recorded: {write_on_one_line(divergence.recorded)}")
            self.stdout.write(f"  today:    {write_on_one_line(divergence.today)}")
        if omitted := result.differing - len(result.divergences):
            self.stdout.write(f"{omitted} more")
        compared = (
            f"compared: {result.agents} agents, {result.replies} replies, {result.calls} calls;"
            f" taken from the record: {result.kept} replies of models"
        )
        if result.divergences:
            first = result.divergences[0].position
            raise CommandError(f"it would go another way from entry {first} on ({compared})")
        self.stdout.write(f"It would go the same way ({compared})")
