"""Payloads removed under retention, with real decisions: only the verifiable decision stays."""

import json
import threading
from datetime import timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from approvals.requests import snapshot
from approvals.signed import audit, statements
from runtime.control import verification
from runtime.core.documents.codec import decode_stored_text
from runtime.core.values.enums import EffectClass, Verdict
from runtime.errors import Tampered
from runtime.models import JournalEntry, Pruning, Run, StoredBlob
from runtime.ports.approvals import NotConfirmed
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.upkeep import retention, sweeper
from runtime.upkeep.retention_rules import parse
from tests.support.calls import around
from tests.support.engine import bodies
from tests.support.fake_ports import FakeTool
from tests.support.object_stores import Breakable
from tests.support.office import Target
from tests.support.seeds import Cast

SECRET = "Zaphod Beeblebrox"
ARGS = {"username": SECRET, "security_level": 3}
TABLES = ("runtime_run", "runtime_journalentry", "runtime_storedcontinuation", "runtime_signal")
PAYLOADS = (
    *TABLES,
    "runtime_storedblob",
    "approvals_approval",
    "approvals_auditentry",
    "runtime_gate",
)
BIG = FakeTool(effect=EffectClass.READ, body=lambda request: ToolResult(value=SECRET * 5_000))


@pytest.fixture
def target(target: Target) -> Target:
    target.effects.tools["create_account"] = BIG
    return target


def ended(target: Target, *, days: int = 31, key: str | None = None) -> UUID:
    """A run that ended that many days ago, with the secret in everything it was given and did."""
    run = target.start(args=ARGS, key=key)
    target.decide(run, Verdict.APPROVE, "as agreed")
    assert target.advance(run).status == "completed"
    age(run, days)
    return run


def age(run: UUID, days: int) -> None:
    row = Run.objects.get(id=run)
    assert row.ended_at is not None
    Run.objects.filter(id=run).update(ended_at=row.ended_at - timedelta(days=days, hours=1))


def enforced(settings: Settings, rules: str, stop: threading.Event | None = None) -> int:
    """Apply these rules, when every blob was used long ago."""
    settings.SIGNOFF_RETENTION = parse(rules)
    with pool.open_own() as own:
        own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '2 hours'")
        return retention.enforce(own, stop or threading.Event())


def removed(run: UUID) -> bool:
    return Run.objects.get(id=run).removed_at is not None


def places_of(secret: str) -> set[str]:
    """The tables in which it still stands."""
    with pool.open_own() as own:
        like = (f"%{secret}%",)
        found = {
            table
            for table in PAYLOADS
            if own.execute(f"SELECT FROM {table} t WHERE t::text LIKE %s", like).rowcount
        }
    if any(secret in decode_stored_text(body) for body in bodies(JournalEntry.objects.all())):
        found.add("runtime_journalentry")
    return found


def test_no_input_text_or_result_is_left(target: Target, settings: Settings) -> None:
    run = ended(target, key="H-1")
    assert {"runtime_journalentry", "runtime_storedblob", "approvals_approval"} <= places_of(SECRET)
    assert enforced(settings, "30") == 1
    assert places_of(SECRET) == set()
    row = Run.objects.get(id=run)
    assert (row.input, row.output, row.reason) == ("null", None, None)
    assert (row.status, row.requester, row.agent) == ("completed", "ada", "hr_onboarding")
    assert not JournalEntry.objects.filter(run_id=run).exists()
    assert not StoredBlob.objects.exists()
    assert target.start(args=ARGS, key="H-1", advanced=False) == run


def test_a_large_result_is_erased_in_the_object_store_too(
    target: Target, settings: Settings, object_store: Breakable
) -> None:
    ended(target)
    (key,) = object_store.keys()
    assert SECRET.encode() in (object_store.get(key) or b"")
    assert enforced(settings, "30") == 1
    with pool.open_own() as own:
        sweeper.look_after_objects(own, threading.Event())
    assert (places_of(SECRET), object_store.keys()) == (set(), [])


def test_decision_and_digest_stay_verifiable(target: Target, settings: Settings) -> None:
    run = ended(target)
    before = Approval.objects.get(run=run)
    enforced(settings, "30")
    approval = Approval.objects.get(run=run)
    assert approval.args == "{}"
    assert approval.sentence == "set_privileges (removed under retention)"
    said = statements.read(approval)
    assert (said.by, said.verdict, said.reason) == ("bea", Verdict.APPROVE, "as agreed")
    assert said.digest == approval.approval_digest == before.approval_digest
    snapshot.check_seal(approval)
    with pytest.raises(NotConfirmed):  # nothing runs on it any more
        snapshot.check_digests(approval)
    assert not retention.erase(run)  # once is enough
    assert audit.verify(run) == AuditEntry.objects.filter(run=run).count()
    last = AuditEntry.objects.filter(run=run).latest("seq")
    assert (last.act, last.actor) == ("removed", None)
    assert json.loads(last.detail) == {"head": Run.objects.get(id=run).head}
    assert verification.verify(run).is_consistent


def test_a_forged_mark_of_a_removed_journal_is_found(target: Target, settings: Settings) -> None:
    run, dropped = ended(target), ended(target, days=29)
    enforced(settings, "30")
    Pruning.objects.filter(run=run).update(head="0" * 64)
    Run.objects.filter(id=run).update(head="0" * 64)
    (finding,) = verification.verify(run).findings
    assert "does not verify" in finding.problem
    JournalEntry.objects.filter(run_id=dropped).delete()
    Run.objects.filter(id=dropped).update(removed_at=timezone.now(), input="null", output=None)
    assert not verification.verify(dropped).is_consistent


def test_age_status_and_agent_decide(target: Target, settings: Settings) -> None:
    old, young = ended(target), ended(target, days=29)
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
    assert not retention.erase(waiting)
    assert StoredBlob.objects.count() == 1  # which the others that are left refer to
    target.approve(waiting)
    assert Run.objects.get(id=waiting).status == "completed"


def test_an_unverifiable_run_keeps_its_payloads_and_stops_no_other(
    target: Target,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    broken, sound = ended(target, days=32), ended(target)
    JournalEntry.objects.filter(run_id=broken).update(body="{}")
    tried: list[UUID] = []

    def note(run: UUID, **_: bool) -> None:
        tried.append(run)
        assert len(tried) < 9, "it is tried for ever"

    around(monkeypatch, retention, "erase", before=note)
    stop = threading.Event()
    stop.set()
    assert enforced(settings, "30", stop) == 0
    assert enforced(settings, "30") == 1
    assert tried == [broken, sound]
    assert (removed(broken), removed(sound)) == (False, True)
    assert Approval.objects.get(run=broken).removed_at is None
    assert "keeps its payloads" in caplog.text
    with pytest.raises(Tampered):
        retention.erase(broken)


def test_the_pages_say_so(target: Target, settings: Settings, cast: Cast) -> None:
    run = ended(target)
    enforced(settings, "30")
    bea = Client()
    bea.force_login(cast.bea)
    approval = Approval.objects.get(run=run)
    for address in (f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/a/{approval.id}/"):
        page = bea.get(address)
        assert page.status_code == 200
        assert "Removed under retention" in page.content.decode()
    detail = bea.get(f"/api/v1/runs/{run}").json()
    assert (detail["input"], detail["output"]) == (None, None)
    assert detail["removed_at"] is not None
    assert bea.get(f"/api/v1/runs/{run}/journal").json() == {"items": [], "next": None}
    assert bea.get(f"/api/v1/approvals/{approval.id}").json()["args"] == {}
    for address in ("/runs/", "/inbox/?tab=decided", f"/runs/{run}/cancel/"):
        assert bea.get(address).status_code < 500
    other = target.start(args={**ARGS, "username": "another"})
    page = bea.get(f"/a/{Approval.objects.get(run=other).id}/")
    assert page.status_code == 200
    assert "removed under retention" not in page.content.decode()  # no example for a new one


def test_the_command_previews_and_then_removes(target: Target, settings: Settings) -> None:
    def said(*options: str) -> str:
        out = StringIO()
        call_command("apply_retention", *options, stdout=out)
        return out.getvalue()

    run = ended(target)
    settings.SIGNOFF_RETENTION = parse("30")
    assert "hr_onboarding completed: 1 runs older than 30 days" in said("--dry-run")
    assert not removed(run)
    assert "1 of 1 runs have lost their payloads." in said()
    assert removed(run)
    settings.SIGNOFF_RETENTION = parse("")
    assert "nothing is ever removed" in said()
