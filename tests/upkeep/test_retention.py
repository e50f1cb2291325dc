"""Payloads removed under retention, with real decisions: only the verifiable decision stays."""

import json
import threading
from datetime import timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import Client
from pytest_django import Settings

from approvals import audit
from approvals.models import AuditEntry, Request
from approvals.requests import snapshot, statements
from runtime.control import verification
from runtime.core.documents.compression import plain_text
from runtime.core.enums import EffectClass, Verdict
from runtime.errors import Tampered
from runtime.models import Blob, JournalEntry, Pruning, Run
from runtime.ports.approvals import NotConfirmed
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.upkeep import retention
from runtime.upkeep.retention_rules import parse
from tests.support.cast import Cast
from tests.support.entries import bodies
from tests.support.fake_ports import FakeTool
from tests.support.target import Target

SECRET = "Zaphod Beeblebrox"
TABLES = ("runtime_run", "runtime_journalentry", "runtime_continuation", "runtime_signal")
PAYLOADS = (*TABLES, "runtime_content", "approvals_request", "approvals_auditentry", "runtime_gate")
REAL = retention.erase
BIG = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=SECRET * 5_000))


@pytest.fixture
def target(target: Target) -> Target:
    target.effects.tools["create_account"] = BIG
    return target


def ended(target: Target, *, days: int, verdict: Verdict = Verdict.APPROVE) -> UUID:
    """A run that ended that many days ago, with the secret in everything it was given and did."""
    run = target.start(args={"username": SECRET, "security_level": 3})
    target.decide(run, verdict, "as agreed")
    assert target.advance(run).status == "completed"
    age(run, days)
    return run


def age(run: UUID, days: int) -> None:
    row = Run.objects.get(id=run)
    assert row.ended_at is not None
    Run.objects.filter(id=run).update(ended_at=row.ended_at - timedelta(days=days, hours=1))


def enforced(settings: Settings, rules: str) -> int:
    settings.ABEYANCE_RETENTION = parse(rules)
    with pool.own() as own:
        return retention.enforce(own, threading.Event())


def removed(run: UUID) -> bool:
    return Run.objects.get(id=run).removed_at is not None


def places_of(secret: str) -> set[str]:
    """The tables in which it still stands."""
    found = set()
    with pool.own() as own:
        for table in PAYLOADS:
            rows = own.execute(
                f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", (f"%{secret}%",)
            )
            if rows.fetchone() != (0,):
                found.add(table)
    if any(secret in plain_text(body) for body in bodies(JournalEntry.objects.all())):
        found.add("runtime_journalentry")
    return found


def test_no_input_text_or_result_is_left(target: Target, settings: Settings) -> None:
    run = ended(target, days=31)
    assert {"runtime_journalentry", "runtime_content", "approvals_request"} <= places_of(SECRET)
    with pool.own() as own:
        own.execute("UPDATE runtime_content SET used_at = now() - interval '2 hours'")
    assert enforced(settings, "30") == 1
    assert places_of(SECRET) == set()
    row = Run.objects.get(id=run)
    assert (row.input, row.output, row.reason) == ("null", None, None)
    assert (row.status, row.requester, row.agent) == ("completed", "ada", "hr_onboarding")
    assert not JournalEntry.objects.filter(run_id=run).exists()
    assert not Blob.objects.exists()


def test_decision_and_digest_stay_verifiable(target: Target, settings: Settings) -> None:
    run = ended(target, days=31)
    before = Request.objects.get(run=run)
    enforced(settings, "30")
    request = Request.objects.get(run=run)
    assert request.args == "{}"
    assert request.sentence == "set_privileges (removed under retention)"
    said = statements.read(request)
    assert (said.by, said.verdict, said.reason) == ("bea", Verdict.APPROVE, "as agreed")
    assert said.digest == request.request_digest == before.request_digest
    snapshot.check_seal(request)
    with pytest.raises(NotConfirmed):  # nothing runs on it any more
        snapshot.check_digests(request)
    assert audit.verify(run) == AuditEntry.objects.filter(run=run).count()
    last = AuditEntry.objects.filter(run=run).latest("seq")
    assert (last.act, last.actor) == ("removed", None)
    assert json.loads(last.detail) == {"head": Run.objects.get(id=run).head}
    assert verification.verify(run).is_consistent


def test_a_forged_mark_of_a_removed_journal_is_found(target: Target, settings: Settings) -> None:
    run = ended(target, days=31)
    enforced(settings, "30")
    Pruning.objects.filter(run=run).update(head="0" * 64)
    Run.objects.filter(id=run).update(head="0" * 64)
    (finding,) = verification.verify(run).findings
    assert "does not verify" in finding.problem


def test_dropped_entries_are_not_taken_for_retention(target: Target) -> None:
    run = ended(target, days=31)
    JournalEntry.objects.filter(run_id=run).delete()
    Run.objects.filter(id=run).update(removed_at="2026-01-01T00:00:00Z", input="null", output=None)
    assert not verification.verify(run).is_consistent


def test_an_unverifiable_run_keeps_its_payloads_and_alarms(
    target: Target, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    run, sound = ended(target, days=32), ended(target, days=31)
    entry = JournalEntry.objects.filter(run_id=run).earliest("position")
    JournalEntry.objects.filter(run_id=run, position=entry.position).update(body="{}")
    assert enforced(settings, "30") == 1
    assert (removed(run), removed(sound)) == (False, True)
    assert Request.objects.get(run=run).removed_at is None
    assert "keeps its payloads" in caplog.text
    with pytest.raises(Tampered):
        retention.erase(run)


def test_age_status_and_agent_decide(target: Target, settings: Settings) -> None:
    old, young = ended(target, days=31), ended(target, days=29)
    cancelled = target.start()
    target.cancel(cancelled, "not needed")
    age(cancelled, 31)
    waiting = target.start()
    assert enforced(settings, "never") == enforced(settings, "another_agent=1") == 0
    assert enforced(settings, "1, hr_onboarding=never") == 0
    assert enforced(settings, "30, */cancelled=90") == 1
    assert [removed(run) for run in (old, young, cancelled, waiting)] == [True, False, False, False]
    assert enforced(settings, "hr_onboarding/cancelled=30") == 1
    assert removed(cancelled)
    assert enforced(settings, "30") == 0
    target.approve(waiting)
    assert Run.objects.get(id=waiting).status == "completed"


def test_it_goes_on_in_batches_until_told_to_stop(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    runs = [ended(target, days=31 + n) for n in range(5)]
    settings.ABEYANCE_RETENTION = parse("30")
    stop = threading.Event()
    stop.set()
    with pool.own() as own:
        assert retention.enforce(own, stop) == 0
        assert retention.enforce(own, threading.Event()) == 5
    assert all(removed(run) for run in runs)


def test_a_failed_removal_does_not_stop_the_others(
    target: Target, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    broken, sound = ended(target, days=32), ended(target, days=31)
    JournalEntry.objects.filter(run_id=broken).update(body="{}")
    tried: list[UUID] = []

    def remove(run: UUID, *, waits: bool = True) -> bool:
        tried.append(run)
        assert len(tried) < 9, "it is tried for ever"
        return REAL(run, waits=waits)

    monkeypatch.setattr(retention, "erase", remove)
    assert enforced(settings, "30") == 1
    assert tried == [broken, sound]


def test_a_run_that_goes_on_loses_nothing(target: Target) -> None:
    run = target.start()
    before = Run.objects.values().get(id=run)
    assert not retention.erase(run)
    assert Run.objects.values().get(id=run) == before
    assert verification.verify(run).is_consistent


def test_a_run_loses_its_payloads_once(target: Target) -> None:
    run = ended(target, days=31)
    assert [retention.erase(run) for _ in range(2)] == [True, False]
    assert AuditEntry.objects.filter(run=run, act="removed").count() == 1


def test_a_content_that_another_run_refers_to_stays(target: Target, settings: Settings) -> None:
    ended(target, days=31)
    waiting = target.start()
    with pool.own() as own:
        own.execute("UPDATE runtime_content SET used_at = now() - interval '2 hours'")
    assert enforced(settings, "30") == 1
    assert Blob.objects.count() == 1
    target.approve(waiting)
    assert Run.objects.get(id=waiting).status == "completed"


def test_the_pages_say_so(target: Target, settings: Settings, cast: Cast) -> None:
    run = ended(target, days=31)
    enforced(settings, "30")
    bea = Client()
    bea.force_login(cast.bea)
    request = Request.objects.get(run=run)
    for address in (f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/a/{request.id}/"):
        page = bea.get(address)
        assert page.status_code == 200
        assert "Removed under retention" in page.content.decode()
    detail = bea.get(f"/api/v1/runs/{run}").json()
    assert (detail["input"], detail["output"]) == (None, None)
    assert detail["removed_at"] is not None
    assert bea.get(f"/api/v1/runs/{run}/journal").json() == {"items": [], "next": None}
    assert bea.get(f"/api/v1/approvals/{request.id}").json()["args"] == {}
    for address in ("/runs/", "/inbox/?tab=decided", f"/runs/{run}/cancel/"):
        assert bea.get(address).status_code < 500


def test_a_removed_run_is_no_example_for_a_new_one(
    target: Target, settings: Settings, cast: Cast
) -> None:
    ended(target, days=31)
    enforced(settings, "30")
    run = target.start(args={"username": "another", "security_level": 3})
    bea = Client()
    bea.force_login(cast.bea)
    page = bea.get(f"/a/{Request.objects.get(run=run).id}/")
    assert page.status_code == 200
    assert "removed under retention" not in page.content.decode()


def test_the_same_business_key_still_finds_the_run(target: Target, settings: Settings) -> None:
    run = target.start(key="H-1")
    target.approve(run)
    age(run, 31)
    enforced(settings, "30")
    assert target.start(key="H-1", advanced=False) == run


def test_the_command_previews_and_then_removes(target: Target, settings: Settings) -> None:
    run = ended(target, days=31)
    settings.ABEYANCE_RETENTION = parse("30")
    assert "hr_onboarding completed: 1 runs older than 30 days" in said("--dry-run")
    assert not removed(run)
    assert "1 of 1 runs have lost their payloads." in said()
    assert removed(run)
    settings.ABEYANCE_RETENTION = parse("")
    assert "nothing is ever removed" in said()


def said(*options: str) -> str:
    out = StringIO()
    call_command("apply_retention", *options, stdout=out)
    return out.getvalue()
