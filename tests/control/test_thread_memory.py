"""What a run remembers of earlier runs of its thread, with real people and decisions."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runtime.control.forks import fork
from runtime.control.interventions import send_message
from runtime.control.start import start
from runtime.control.verification import verify
from runtime.core.documents.codec import decode_stored_text
from runtime.core.values.limits import MAX_REMEMBERED_TEXT
from runtime.errors import InvalidInput
from runtime.models import BlobReference, JournalEntry, Run, StoredBlob
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome
from runtime.store import pool
from runtime.store.tables import blobs
from runtime.upkeep import retention
from tests.support.engine import bodies, events, start_run, types
from tests.support.fake_ports import say, turns
from tests.support.office import BEA, Office, refused
from tests.support.seeds import published
from tests.support.threads import aside

ADA, CYRIL = Actor(person="ada"), Actor(person="cyril")
ANSWER = "New Hire is on board."
ASKED = {"full_name": "Zaphod"}


@pytest.fixture
def thread(office: Office) -> "Thread":
    published("hr_onboarding", input_schema={}, thread_memory={"last": 4})
    published("other_agent", input_schema={})
    return Thread(office)


class Thread:
    """Runs of the office in threads; a short one answers at once."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.long = dict(office.effects.agents)

    def start(self, by: Actor, name: str | None = "t", given: Any = ASKED, **more: Any) -> UUID:
        run = start_run("hr_onboarding", given, by, thread=name, **more)
        self.office.advance(run)
        return run

    def answered(self, by: Actor, answer: str = ANSWER, **given: Any) -> UUID:
        self.office.effects.agents["hr_onboarding"] = turns(say(answer))
        run = self.start(by, **given)
        assert Run.objects.get(id=run).status == "completed"
        return run

    def waiting(self, by: Actor, **given: Any) -> UUID:
        """A run that waits at a gate of its account agent."""
        self.office.effects.agents = dict(self.long)
        return self.start(by, **given)

    def told(self, run: UUID) -> list[tuple[str, str, str | None]]:
        """What the root's model got last: who asked or answered which text in which run."""
        request = next(
            one
            for one in reversed(self.office.effects.models)
            if (one.run, one.frame) == (run, "0")
        )
        memory = request.messages[0].get("memory", ())
        return [(one["kind"], one["by"], one["text"]) for one in memory]


def origin(run: UUID) -> list[str]:
    (started, *_) = events(run)
    found = [str(started["requester"]), *started["makers"]]
    assert sorted(found) == sorted(Run.objects.get(id=run).origin)
    return sorted(found)


def test_a_run_is_told_what_the_thread_said(thread: Thread) -> None:
    first = thread.answered(ADA)
    second = thread.answered(ADA, "Welcome.")
    assert thread.told(second) == [
        ("asked", "ada", json.dumps(ASKED)),
        ("answered", "hr_onboarding", ANSWER),
    ]
    (started, *_) = events(second)
    assert [one["run"] for one in started["memory"]] == [str(first)] * 2
    assert started["thread"] == Run.objects.get(id=second).thread == "t"
    assert (thread.told(first), origin(second)) == ([], ["ada"])
    written = "".join(map(decode_stored_text, bodies(JournalEntry.objects.filter(run_id=second))))
    assert ANSWER not in written
    assert verify(second).is_consistent


def test_only_answered_runs_of_the_same_thread_and_agent_count(thread: Thread) -> None:
    thread.answered(ADA, name="another")
    thread.answered(ADA, name=None)
    thread.waiting(ADA)
    assert thread.told(thread.answered(ADA)) == []
    other = start_run("other_agent", {}, thread="t")
    assert events(other)[0]["memory"] == []


def test_people_remember_only_what_they_may_read(thread: Thread) -> None:
    """Bea reviews runs of Ada's, so she may read those with a gate. Cyril may read none, and Ada none of Bea's."""
    thread.office.approve(run := thread.waiting(ADA))
    assert Run.objects.get(id=run).status == "completed"
    assert next(by for _, by, _ in thread.told(thread.answered(BEA))) == "ada"
    assert thread.told(thread.answered(CYRIL)) == []
    assert [by for kind, by, _ in thread.told(thread.answered(ADA)) if kind == "asked"] == ["ada"]


def test_the_people_behind_a_memory_decide_nothing(thread: Thread) -> None:
    thread.office.approve(first := thread.waiting(ADA))
    second = thread.waiting(BEA)
    assert origin(second) == ["ada", "bea"]
    assert refused(second, ADA) == "origin"
    alone = thread.waiting(BEA, name="fresh")
    assert origin(alone) == ["bea"]
    assert first not in (second, alone)


def test_messages_to_a_run_are_remembered_with_their_writers(thread: Thread) -> None:
    run = thread.waiting(ADA)
    send_message(run=run, text="Level 2 is enough.", actor=ADA)
    thread.office.approve(run)
    said = thread.told(thread.answered(ADA))
    assert ("asked", "ada", "Level 2 is enough.") in said
    assert [kind for kind, _, _ in said] == ["asked", "asked", "answered"]


def test_the_last_texts_are_kept_within_both_bounds(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.answered(ADA, "first")
    thread.answered(ADA, "x" * (MAX_REMEMBERED_TEXT + 1))
    said = thread.told(thread.answered(ADA, "third"))
    assert [text[:1] for _, _, text in said if text] == ["{", "f", "{", "x"]
    cut = said[-1][2] or ""
    assert (len(cut), cut[-1]) == (MAX_REMEMBERED_TEXT, "…")
    said = thread.told(thread.answered(ADA))
    assert [text[:1] for _, _, text in said if text] == ["{", "x", "{", "t"]
    monkeypatch.setattr("runtime.control.start.MAX_MEMORY", 10)
    assert [text for _, _, text in thread.told(thread.answered(ADA))] == []
    thread.answered(ADA, "last", given={})
    assert [text for _, _, text in thread.told(thread.answered(ADA))] == ["{}", "last"]
    with pytest.raises(InvalidInput) as refusal:
        start(agent="hr_onboarding", input=ASKED, business_key=None, actor=ADA, thread="")
    assert refusal.value.field == "thread"


def test_erasing_a_run_erases_it_from_memories_and_forks(thread: Thread, client: Client) -> None:
    first = thread.answered(ADA)
    second = thread.waiting(ADA)
    copy = fork(run=second, position=2, actor=ADA)
    thread.office.advance(copy)
    assert thread.told(copy) == thread.told(second) != []
    assert Run.objects.get(id=copy).thread is None
    client.force_login(User.objects.get(username="ada"))
    page = client.get(reverse("run", args=[second])).content.decode()
    assert ANSWER in page
    assert reverse("run", args=[first]) in page
    assert retention.erase(first)
    assert not StoredBlob.objects.exists()
    page = client.get(reverse("run", args=[second])).content.decode()
    assert ANSWER not in page
    assert "Erased with its run." in page
    for run in (second, copy):
        assert verify(run).is_consistent
        thread.office.approve(run)
        assert [text for _, _, text in thread.told(run)] == [None, None]
        assert Run.objects.get(id=run).status == "completed"
    assert thread.told(thread.answered(ADA))[:1] != []  # second is remembered, first is not


def test_a_fork_keeps_its_memory_when_its_original_is_erased(thread: Thread) -> None:
    thread.answered(ADA)
    second = thread.waiting(ADA)
    copy = fork(run=second, position=2, actor=ADA)
    thread.office.advance(copy)
    thread.office.approve(second)
    assert retention.erase(second)
    with pool.open_own() as own:
        own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '2 hours'")
        blobs.collect(own, 10)
    thread.office.approve(copy)
    assert thread.told(copy)[-1] == ("answered", "hr_onboarding", ANSWER)


def test_a_journal_that_does_not_verify_is_not_remembered(thread: Thread) -> None:
    first = thread.answered(ADA)
    Run.objects.filter(id=first).update(head="0" * 64)
    assert thread.told(thread.answered(ADA, name="t")) == []
    Run.objects.all().update(thread=None)
    first = thread.answered(ADA)
    JournalEntry.objects.filter(run_id=first, position=1).update(key_id="other")
    assert thread.told(thread.answered(ADA)) == []


def test_few_and_short_runs_are_read(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    thread.answered(ADA, "first")
    thread.answered(ADA, "second")
    monkeypatch.setattr("runtime.reads.threads.MAX_REMEMBERED_RUNS", 1)
    said = thread.told(thread.answered(ADA))
    assert [text for kind, _, text in said if kind == "answered"] == ["second"]
    monkeypatch.setattr("runtime.reads.threads.MAX_REMEMBERED_ENTRIES", 1)
    assert thread.told(thread.answered(ADA)) == []


# Summaries


SUMMARY = "Ada asked about Zaphod."
USED = replace(say(SUMMARY), usage={"input_tokens": 30, "output_tokens": 6}, cost=5)


class Summing(Thread):
    """Runs of an agent that sums its summing up; `summaries` are what its model says to that, in order."""

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
def summing(office: Office) -> Summing:
    published("hr_onboarding", input_schema={}, thread_memory={"last": 50, "summary": 200})
    return Summing(office)


def test_the_model_sums_up_what_the_thread_said(summing: Summing) -> None:
    run = summing.second()
    asked, answered = [one for one in summing.office.effects.models if one.run == run]
    assert (asked.summary, asked.memory_tokens, answered.memory_tokens) == (True, 200, 0)
    assert [one["text"] for one in asked.messages[0]["memory"]][1:] == [ANSWER]
    assert summing.told(run) == [("summary", "hr_onboarding", SUMMARY)]
    assert types(run)[1:4] == ["FrameOpened", "MemorySummarised", "ModelReplied"]
    (event,) = [one for one in events(run) if one["type"] == "MemorySummarised"]
    assert (event["text"], event["usage"], event["cost"]) == ("", USED.usage, 5)
    written = "".join(map(decode_stored_text, bodies(JournalEntry.objects.filter(run_id=run))))
    assert SUMMARY not in written
    assert verify(run).is_consistent


def test_a_run_without_a_memory_sums_nothing_up(summing: Summing) -> None:
    summing.office.effects.agents["hr_onboarding"] = summing.talk
    assert "MemorySummarised" not in types(summing.start(ADA))


def test_a_failing_model_is_called_again_for_the_summary(summing: Summing) -> None:
    summing.summaries.append(ModelFailure(error="overloaded", retryable=True, retry_after=0.0))
    run = summing.second()
    summing.office.advance(run)
    assert Run.objects.get(id=run).status == "completed"
    kinds = [one for one in types(run) if one in ("RetryScheduled", "MemorySummarised")]
    assert kinds == ["RetryScheduled", "MemorySummarised"]


def test_an_empty_summary_fails_the_run(summing: Summing) -> None:
    summing.summaries.append(say(" "))
    run = summing.second()
    assert Run.objects.get(id=run).status == "failed"
    assert "from 1 to" in events(run)[-1]["error"]


def test_a_summary_is_erased_with_any_run_that_it_is_about(summing: Summing) -> None:
    run = summing.second()
    copy = fork(run=run, position=Run.objects.get(id=run).position - 1, actor=ADA)
    digest = StoredBlob.objects.get(is_summary=True).digest
    assert BlobReference.objects.filter(run_id=copy, blob_id=digest).exists()
    assert retention.erase(summing.first)
    assert not StoredBlob.objects.exists()
    summing.office.advance(copy)
    assert summing.told(copy) == [("summary", "hr_onboarding", None)]
    for one in (run, copy):
        assert verify(one).is_consistent


def test_no_summary_is_kept_of_a_run_that_was_erased_meanwhile(summing: Summing) -> None:
    summing.first = summing.answered(ADA)

    def talk(request: ModelRequest) -> Outcome:
        if request.memory_tokens:
            aside(lambda: retention.erase(summing.first))
        return summing.talk(request)

    summing.office.effects.agents["hr_onboarding"] = talk
    run = summing.start(ADA)
    assert summing.told(run) == [("summary", "hr_onboarding", None)]
    assert Run.objects.get(id=run).status == "completed"
    assert not StoredBlob.objects.exists()
