"""`manage.py try_prompt`: ask the models of recorded runs again, with another version of a prompt."""

import time
from argparse import ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import RegistryError
from agents.registry import load
from approvals.errors import ApprovalError
from approvals.governance.prompt_versions import StoredPrompts
from runtime.core.values.texts import write_on_one_line
from runtime.errors import RuntimeFault
from runtime.execution.jobs.runner import MAX_SECONDS
from runtime.reads.redaction import redact
from runtime.store.tables.jobs import MAX_RUNS

DEFAULT_RUNS = 3


class Command(BaseCommand):
    """Tries a version of a prompt and prints what each model would reply now."""

    help = (
        "Ask the models of the last recorded runs with a prompt again, with another version of it, and print both"
        " replies. No call is made. The models cost about as much as the recorded replies did."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("number", type=int, help="of the version, 0 for the text in the code")
        parser.add_argument(
            "--runs",
            type=_count,
            default=DEFAULT_RUNS,
            help=f"how many, at most {MAX_RUNS}; {DEFAULT_RUNS} without it",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from agents.effect_handler import AgentEffects
        from agents.llm.rate_limits import RateLimits
        from runtime.execution.jobs.prompt_trials import try_each

        until = time.monotonic() + MAX_SECONDS
        try:
            registry = load(settings.SIGNOFF_AGENTS, settings.AGENTS_DIR)
            handler = AgentEffects(registry, rate_limits=RateLimits(), prompts=StoredPrompts())
            tried_runs = list(
                try_each(
                    options["name"],
                    options["number"],
                    options["runs"],
                    handler=handler,
                    stops=lambda: time.monotonic() > until,
                )
            )
        except (RegistryError, RuntimeFault, ApprovalError) as exc:
            raise CommandError(str(exc)) from exc
        for tried_run in tried_runs:
            self.stdout.write(
                f"Run {tried_run.run}{': ' + tried_run.error if tried_run.error else ''}"
            )
            for reply in tried_run.replies:
                self.stdout.write(f"  Entry {reply.position}, {' › '.join(reply.path)}")
                # A model's words could move the cursor, or imitate the lines below.
                self.stdout.write(
                    f"    recorded: {write_on_one_line(_describe_reply(reply.recorded))}"
                )
                now = reply.error or _describe_reply(reply.tried)
                self.stdout.write(
                    f"    tried:    {write_on_one_line(now) if reply.differs or reply.error else 'the same'}"
                )
        replies = [reply for tried_run in tried_runs for reply in tried_run.replies]
        costs = [reply.tried.cost for reply in replies if reply.tried is not None]
        total = sum(cost for cost in costs if cost is not None) / 1_000_000
        unknown = f", without {costs.count(None)} of unknown price" if None in costs else ""
        self.stdout.write(
            f"{len(tried_runs)} runs, {len(costs)} replies, {sum(reply.differs for reply in replies)} differ;"
            f" they cost {total:.4f} US dollars{unknown}. No call was made."
        )


def _describe_reply(reply: Any) -> str:
    words = [f"calls {call['tool']} with {redact(call['args'])}" for call in reply.calls]
    if reply.output is not None:
        words.append(f"ends with {redact(reply.output)}")
    elif reply.text:
        words.append(f"says {redact(reply.text)!r}")
    return " and ".join(words) or "says nothing"


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RUNS:
        raise ArgumentTypeError(f"must be a number from 1 to {MAX_RUNS}")
    return int(text)
