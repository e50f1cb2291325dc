"""Stored bytes of a run, and the cost of writing and reading them: `python -m tests.bench.measures.stored`.

Everything is in memory, so the figures are those of the codec and of the model adapter alone. Times are processor time
of one round, in microseconds: the median of the rounds, with the least and the most.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import django

ROUNDS = 15
STEPS = 1_000


def main() -> None:
    django.setup()
    flow()
    adapter()
    long_run()


def flow() -> None:
    """A nested flow that waits for one approval."""
    from runtime.core.documents.codec import decode_entry, encode_entry
    from runtime.core.enums import Decision, Verdict
    from runtime.core.events import ModelReplied, RunStarted
    from tests.stored.scenarios import INPUT, Recorder, boss

    worker = Recorder(boss(), crash_before=(), cancels=False, busy=False)
    worker.advance(RunStarted(agent="boss", input=INPUT, requester="ada"))
    worker.go_on()
    journal = sum(map(len, worker.journal))
    say("suspended, bytes: journal", journal)
    for pending in worker.now.pending:
        worker.decide(pending.gate, Decision(verdict=Verdict.APPROVE, by="bea", reason=""))
    worker.go_on()
    replies = [
        len(json.dumps(event, separators=(",", ":")))
        for text in worker.journal
        for event in json.loads(text)["events"]
        if event["type"] == ModelReplied.__name__
    ]
    say("finished, bytes: journal", sum(map(len, worker.journal)), "of replies", replies)
    entries = [decode_entry(text) for text in worker.journal]
    say(len(entries), "entries: encode", took(lambda: [encode_entry(entry) for entry in entries]))
    say(len(entries), "entries: decode", took(lambda: [decode_entry(x) for x in worker.journal]))


def adapter() -> None:
    """One reply of a provider with one call, as it is taken in."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.usage import RequestUsage

    from agents.llm.messages import from_provider
    from runtime.execution.effects.validation import validate_outcome
    from tests.stored.scenarios import desk

    parts: list[Any] = [
        TextPart(content="I refund it."),
        ToolCallPart(
            tool_name="refund",
            args='{"number":"A-1","euros":40}',
            tool_call_id="call_wDPJ8rJ8FNFnpVE1RJq1lEJ6",
        ),
    ]
    reply = ModelResponse(
        parts=parts,
        usage=RequestUsage(input_tokens=412, output_tokens=31),
        model_name="gpt-5-mini-2025-08-07",
        provider_name="openai",
        provider_url="https://api.openai.com/v1/",
        provider_details={"finish_reason": "tool_calls"},
        provider_response_id="chatcmpl-CSn9cWB5KRLR93pGyjZ2NQZTBVFwy",
        finish_reason="tool_call",
    )
    spec = desk()
    stored = json.dumps(from_provider(spec, reply).reply, separators=(",", ":"))
    say("one reply of a provider, bytes:", len(stored))
    say("one reply: taken in", took(lambda: validate_outcome(from_provider(spec, reply))))


def long_run() -> None:
    """Return so many steps of one call each, and a brief continuation."""
    from runtime.core.documents.codec import encode_continuation
    from runtime.core.documents.conversations import Conversations
    from runtime.core.events import RunStarted
    from tests.bench.sides.agents import walker
    from tests.stored.scenarios import Recorder

    class Walk(Recorder):
        def advance(self, *news: Any) -> None:
            super(Recorder, self).advance(*news)

    worker = Walk(walker, crash_before=(), cancels=False, busy=False)
    given = {"turns": STEPS, "given": 200, "got": 200, "gate": True}
    worker.advance(RunStarted(agent="walker", input=given, requester="ada"))
    worker.go_on()
    conversations = Conversations()
    for text in worker.journal:
        conversations.read(text)
    brief = conversations.brief(worker.now)
    assert brief is not None
    sizes = sum(map(len, worker.journal)), len(encode_continuation(brief.state, brief.told))
    say(STEPS, "steps, bytes: journal", sizes[0], "continuation", sizes[1])


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def took(work: Callable[[], object]) -> str:
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(200):
            work()
        rounds.append((time.process_time() - begun) / 200 * 1e6)
    return f"{statistics.median(rounds):.0f} us ({min(rounds):.0f}-{max(rounds):.0f})"


if __name__ == "__main__":
    main()
