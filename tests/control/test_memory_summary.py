"""A run whose model sums up the earlier texts of its thread, with real people."""

from dataclasses import replace
from uuid import UUID

import pytest

from runtime.control.forks import fork
from runtime.control.verification import verify
from runtime.core.documents.codec import plain_text
from runtime.models import BlobReference, JournalEntry, Run, StoredBlob
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome
from runtime.upkeep import retention
from tests.control.test_thread_memory import ADA, ANSWER, Thread
from tests.support.engine import bodies, events, types
from tests.support.fake_ports import say
from tests.support.office import Office
from tests.support.seeds import published
from tests.support.threads import aside

SUMMARY = "Ada asked about Zaphod."
USED = replace(say(SUMMARY), usage={"input_tokens": 30, "output_tokens": 6}, cost=5)


class Summing(Thread):
    """Runs of an agent that sums its thread up; `summaries` are what its model says to that, in order."""

    def __init__(self, office: Office) -> None:
        super().__init__(office)
        self.summaries: list[Outcome] = []

    def talk(self, request: ModelRequest) -> Outcome:
        if request.memory_tokens:
            return self.summaries.pop(0) if self.summaries else USED
        return say("Welcome.")

    def second(self) -> UUID:
        """A run that remembers a first one."""
        self.first = self.answered(ADA)
        self.office.effects.agents["hr_onboarding"] = self.talk
        return self.start(ADA)


@pytest.fixture
def thread(office: Office) -> Summing:
    published("hr_onboarding", input_schema={}, thread_memory={"last": 50, "summary": 200})
    return Summing(office)


def test_the_model_sums_up_what_the_thread_said(thread: Summing) -> None:
    run = thread.second()
    asked, answered = [one for one in thread.office.effects.models if one.run == run]
    assert (asked.summary, asked.memory_tokens, answered.memory_tokens) == (True, 200, 0)
    assert [one["text"] for one in asked.messages[0]["memory"]][1:] == [ANSWER]
    assert thread.told(run) == [("summary", "hr_onboarding", SUMMARY)]
    assert types(run)[1:4] == ["FrameOpened", "MemorySummarised", "ModelReplied"]
    (event,) = [one for one in events(run) if one["type"] == "MemorySummarised"]
    assert (event["text"], event["usage"], event["cost"]) == ("", USED.usage, 5)
    written = "".join(map(plain_text, bodies(JournalEntry.objects.filter(run_id=run))))
    assert SUMMARY not in written
    assert verify(run).is_consistent


def test_a_run_without_a_memory_sums_nothing_up(thread: Summing) -> None:
    thread.office.effects.agents["hr_onboarding"] = thread.talk
    assert "MemorySummarised" not in types(thread.start(ADA))


def test_a_failing_model_is_called_again_for_the_summary(thread: Summing) -> None:
    thread.summaries.append(ModelFailure(error="overloaded", retryable=True, retry_after=0.0))
    run = thread.second()
    thread.office.advance(run)
    assert Run.objects.get(id=run).status == "completed"
    kinds = [one for one in types(run) if one in ("RetryScheduled", "MemorySummarised")]
    assert kinds == ["RetryScheduled", "MemorySummarised"]


def test_an_empty_summary_fails_the_run(thread: Summing) -> None:
    thread.summaries.append(say(" "))
    run = thread.second()
    assert Run.objects.get(id=run).status == "failed"
    assert "from 1 to" in events(run)[-1]["error"]


def test_a_summary_is_erased_with_any_run_that_it_is_about(thread: Summing) -> None:
    run = thread.second()
    copy = fork(run=run, position=Run.objects.get(id=run).position - 1, actor=ADA)
    digest = StoredBlob.objects.get(is_summary=True).digest
    assert BlobReference.objects.filter(run_id=copy, blob_id=digest).exists()
    assert retention.erase(thread.first)
    assert not StoredBlob.objects.exists()
    thread.office.advance(copy)
    assert thread.told(copy) == [("summary", "hr_onboarding", None)]
    for one in (run, copy):
        assert verify(one).is_consistent


def test_no_summary_is_kept_of_a_run_that_was_erased_meanwhile(thread: Summing) -> None:
    thread.first = thread.answered(ADA)

    def talk(request: ModelRequest) -> Outcome:
        if request.memory_tokens:
            aside(lambda: retention.erase(thread.first))
        return thread.talk(request)

    thread.office.effects.agents["hr_onboarding"] = talk
    run = thread.start(ADA)
    assert thread.told(run) == [("summary", "hr_onboarding", None)]
    assert Run.objects.get(id=run).status == "completed"
    assert not StoredBlob.objects.exists()
