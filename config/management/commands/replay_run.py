"""`manage.py replay_run`: say at which steps a recorded run would go another way with the current agents."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from agents.errors import RegistryError
from agents.registry import load
from approvals.prompts.in_production import StoredPrompts
from runtime.core.invisible import on_one_line
from runtime.errors import RuntimeFault
from runtime.management.run_ids import run_id
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
        parser.add_argument("run", type=run_id, metavar="RUN", help="its id")

    def handle(self, *args: Any, **options: Any) -> None:
        from agents.effect_handler import AgentEffects
        from runtime.execution.recorded.replay import replay

        if not Run.objects.filter(id=options["run"]).exists():
            raise CommandError(f"there is no run {options['run']}")
        try:
            registry = load(settings.ABEYANCE_AGENTS, settings.AGENTS_DIR)
            handler = AgentEffects(registry, prompts=StoredPrompts())
            found = replay(
                pool.in_transaction,
                options["run"],
                handler=handler,
                approvals=wiring.approvals(),
                is_scripted=handler.is_scripted,
                clock=timezone.now,
            )
        except (RegistryError, RuntimeFault) as exc:
            raise CommandError(str(exc)) from exc
        if not found.compared:
            raise CommandError(f"nothing of the run {options['run']} is left to compare")
        if found.begins > 1:
            self.stdout.write(f"History before entry {found.begins} was removed: not compared")
        for one in found.divergences:
            # An agent's words could move the cursor, or imitate the lines below.
            self.stdout.write(on_one_line(f"Entry {one.position}, {' › '.join(one.path)}"))
            self.stdout.write(f"  recorded: {on_one_line(one.recorded)}")
            self.stdout.write(f"  today:    {on_one_line(one.today)}")
        if more := found.differing - len(found.divergences):
            self.stdout.write(f"{more} more")
        compared = (
            f"compared: {found.agents} agents, {found.replies} replies, {found.calls} calls;"
            f" taken from the record: {found.kept} replies of models"
        )
        if found.divergences:
            first = found.divergences[0].position
            raise CommandError(f"it would go another way from entry {first} on ({compared})")
        self.stdout.write(f"It would go the same way ({compared})")
