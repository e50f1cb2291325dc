"""`manage.py prepare`: the rights of the roles of web and workers in the database, and static files."""

import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings

from approvals.governance import policies
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from config import grants
from runtime.control.external_events import deliver
from runtime.errors import NotVerified
from runtime.models import Occurrence, Run, Trigger
from runtime.store import pool
from runtime.store.tables import trigger_rows
from runtime.store.tables.occurrences import OccurrenceKind
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes, firing, webhooks
from runtime.triggers import changes as trigger_changes
from runtime.upkeep import due_runs, journals, retention
from tests.approvals.policies.office import asked
from tests.support import seeds
from tests.support.mail import Sink
from tests.support.notices import hears, send_notices

WEB, WORKER, UNPRIVILEGED = "rights_web", "rights_worker", "rights_nobody"
BOTH = (WEB, WORKER)


@pytest.fixture
def granted(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        for role in BOTH:
            cursor.execute(f"CREATE ROLE {role}")
    grants.grant(web=WEB, worker=WORKER)
    yield
    with connection.cursor() as cursor:
        for role in BOTH:
            cursor.execute(f"DROP OWNED BY {role}")
            cursor.execute(f"DROP ROLE {role}")
        for function in grants.OWNERS_FUNCTIONS:
            cursor.execute(f"ALTER FUNCTION {function} SECURITY INVOKER RESET search_path")
            cursor.execute(f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")


def as_role(role: str, statement: str) -> None:
    """Run a statement with the rights of a role, and roll it back."""
    with pool.open_own() as own, own.transaction(force_rollback=True):
        own.execute(f"SET LOCAL ROLE {role}")
        own.execute(statement.encode())


NEITHERS = """
    UPDATE approvals_auditentry SET actor = 'cyril'
    DELETE FROM approvals_auditentry
    ALTER TABLE approvals_auditentry DISABLE TRIGGER USER
    DELETE FROM runtime_usedapproval
    UPDATE runtime_usedapproval SET attempt = 2
    DELETE FROM approvals_toolschema
    UPDATE approvals_toolschema SET body = ''
    UPDATE runtime_journalentry SET body = ''
    INSERT INTO runtime_journalentry_default VALUES (gen_random_uuid(), 1, '', '', '', gen_random_uuid())
    CREATE TABLE here (id int)
    DELETE FROM runtime_run
    UPDATE approvals_assignment SET act = 'given'
    DELETE FROM approvals_assignment
    DELETE FROM approvals_token
    DELETE FROM django_migrations
    SELECT pg_read_file('/etc/passwd')
    COPY auth_group (name) FROM PROGRAM 'id'
"""
OF_THE_WEB = """
    INSERT INTO auth_group (name) VALUES ('more')
    UPDATE auth_user SET is_active = true
    DELETE FROM auth_user_groups
    SELECT FROM approvals_token
    SELECT FROM django_session
    SELECT FROM approvals_loginfailures
"""
OF_BOTH = """
    INSERT INTO runtime_journalentry VALUES (gen_random_uuid(), 1, '', '', '', gen_random_uuid())
    SELECT nextval('approvals_auditentry_id_seq')
"""


def may(role: str, statement: str) -> bool:
    try:
        as_role(role, statement)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


@pytest.mark.parametrize("role", BOTH)
def test_rights_that_neither_role_has(granted: None, role: str) -> None:
    assert [one for one in NEITHERS.strip().splitlines() if may(role, one)] == []
    assert [one for one in OF_BOTH.strip().splitlines() if not may(role, one)] == []


def test_rights_that_only_the_web_has(granted: None) -> None:
    statements = OF_THE_WEB.strip().splitlines()
    assert [one for one in statements if not may(WEB, one) or may(WORKER, one)] == []
    assert set(grants.TABLES) <= set(connection.introspection.table_names())


def test_the_web_may_change_the_policy(granted: None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WEB}")
        assert policies.propose("rules: []", actor=None) == 2
        transaction.set_rollback(True)


def test_the_sweeper_mails_people_with_the_rights_of_a_worker(granted: None, sink: Sink) -> None:
    seeds.person("bea", *seeds.GROUPS["bea"])
    hears("bea", "bea@example.com")
    seeds.pending()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WORKER}")
        send_notices()
        transaction.set_rollback(True)
    assert len(sink.mails) == 2


def test_the_sweeper_looks_ahead_with_the_rights_of_a_worker(granted: None) -> None:
    seeds.person("bea", *seeds.GROUPS["bea"])
    policy = (
        "rules: [{name: A, people: [bea], escalate: [{groups: [reviewers], expires_after: 60}]}]"
    )
    approval = asked(policy, expires_at=seeds.moment(30))
    accounts.disable("bea", actor=None)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WORKER}")
        ApprovalService().look_ahead(threading.Event())
        approval.refresh_from_db()
        transaction.set_rollback(True)
    assert (approval.escalated, approval.undecidable_at is not None) == (1, True)


def test_the_sweeper_starts_runs_of_schedules_with_the_rights_of_a_worker(granted: None) -> None:
    ada = seeds.person("ada", *seeds.GROUPS["ada"])
    seeds.published(input_schema={})
    said = {"name": "Hourly", "agent": "hr_onboarding", "every": 60, "overlap": "allow"}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WEB}")
        made = trigger_changes.create(TriggerKind.SCHEDULE, sent=said, actor=ada)
        changes.run_now(id=made, actor=ada)
    Trigger.objects.update(next_at=F("created_at"), due_at=F("created_at"))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WORKER}")
        firing.handle(
            pool.use_django_connection(), _locked(made), timezone.now() + timedelta(hours=1)
        )
    assert Run.objects.count() == 2


def test_the_sweeper_starts_runs_of_triggers_with_the_rights_of_a_worker(granted: None) -> None:
    ada, admin = (seeds.person(name, *seeds.GROUPS[name]) for name in ("ada", "admin"))
    seeds.published(input_schema={})
    said = {"name": "Hires", "agent": "hr_onboarding", "event": "hired", "debounce": 1}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WEB}")
        made = trigger_changes.create(TriggerKind.EVENT, sent=said, actor=ada)
        hook = webhooks.make(id=made, scheme="header", header="x-token", actor=ada)
        for number in ("e-1", "e-2"):
            deliver(id=number, name="hired", data={}, actor=admin)
        webhooks.receive(hook.address, {"x-token": hook.secret}, b"{}")
        with pytest.raises(NotVerified):
            webhooks.receive(hook.address, {}, b"{}")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {WORKER}")
        for seconds in (0, 5):
            now = timezone.now() + timedelta(seconds=seconds)
            row = trigger_rows.lock_due(pool.use_django_connection(), TriggerKind.EVENT, now, [])
            assert row is not None
            firing.handle(pool.use_django_connection(), row, now)
    assert Run.objects.count() == 1
    for role, statement in (
        (WORKER, "INSERT INTO runtime_triggeract (trigger) VALUES (gen_random_uuid())"),
        (WORKER, "UPDATE runtime_triggeract SET body = ''"),
        (WEB, "DELETE FROM runtime_triggeract"),
        (WEB, "DELETE FROM runtime_occurrence"),
        (WORKER, "UPDATE runtime_receivedevent SET data = ''"),
        (WORKER, "INSERT INTO runtime_triggersource (trigger) VALUES (gen_random_uuid())"),
        (WEB, "DELETE FROM runtime_watchedfile"),
        (WORKER, "UPDATE runtime_triggerwebhook SET refused = 0"),
        (WEB, "UPDATE runtime_triggeract SET body = ''"),
        (WEB, "UPDATE runtime_receivedevent SET data = ''"),
    ):
        assert not may(role, statement)


def test_a_worker_deletes_old_events_and_no_times_of_schedules(granted: None) -> None:
    for kind in OccurrenceKind:
        row = Occurrence.objects.create(
            trigger=uuid4(), number=1, at=timezone.now(), kind=kind, state="skipped"
        )
        delete = f"DELETE FROM runtime_occurrence WHERE trigger = '{row.trigger}'"
        assert may(WORKER, delete) is (kind is OccurrenceKind.EVENT)


def _locked(schedule: UUID) -> TriggerRow:
    row = trigger_rows.lock(pool.use_django_connection(), schedule)
    assert row is not None
    return row


def test_only_the_worker_does_what_the_sweeper_needs(granted: None) -> None:
    with pool.open_own() as own:
        own.execute(
            "CREATE TABLE runtime_journalentry_2019_03 PARTITION OF runtime_journalentry FOR VALUES"
            " FROM ('01693668-f400-0000-0000-000000000000') TO ('0169d60d-2000-0000-0000-000000000000')"
        )
        assert not may(WEB, "SELECT signoff_make_partitions(2)")
        own.execute(f"SET ROLE {WORKER}")
        journals.make_partitions(own)
        assert journals.drop_empty_partitions(own) == ["runtime_journalentry_2019_03"]
        due_runs.dispatch_window(own)
        retention.enforce(own, threading.Event())
    for name in ("runtime_run", "runtime_journalentry_2999_01"):
        with pytest.raises(psycopg.errors.RaiseException, match="is not a month"):
            as_role(WORKER, f"SELECT signoff_drop_partition('{name}')")


def test_a_table_of_the_same_name_does_not_mislead_the_owner(granted: None) -> None:
    """A temporary table comes first unless the search path names a schema."""
    with pool.open_own() as own, own.transaction(force_rollback=True):
        own.execute(f"SET LOCAL ROLE {WORKER}")
        own.execute("CREATE TEMP TABLE runtime_journalentry (id int)")
        own.execute("SELECT signoff_make_partitions(40)")
        parents = own.execute(
            "SELECT DISTINCT inhparent::regclass::text FROM pg_inherits"
            " JOIN pg_class ON pg_class.oid = inhparent WHERE relkind = 'p'"
        ).fetchall()
    assert parents == [("public.runtime_journalentry",)]


@pytest.mark.parametrize(
    ("role", "why"), [(UNPRIVILEGED, "which is no role"), ("postgres", "who cannot be kept")]
)
def test_a_role_that_cannot_be_limited_is_refused(db: None, role: str, why: str) -> None:
    with pytest.raises(grants.NotGranted, match=f"SIGNOFF_WEB_ROLE names {role}, .*{why}"):
        grants.grant(web=role, worker=role)


def test_a_role_is_made_with_its_password_and_gets_a_new_one(transactional_db: None) -> None:
    where = pool._read_parameters()
    try:
        for password in ("first", "second"):
            grants.ensure_role(UNPRIVILEGED, password)
            with psycopg.connect(**{**where, "user": UNPRIVILEGED, "password": password}) as own:
                assert own.info.user == UNPRIVILEGED
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP ROLE IF EXISTS {UNPRIVILEGED}")
    with pytest.raises(grants.NotGranted, match="postgres is a superuser"):
        grants.ensure_role("postgres", "new")


@pytest.mark.django_db
@pytest.mark.parametrize("what", ["same", "changed", "touched", "new", "gone"])
def test_static_files_are_collected_again_if_their_sources_changed(
    settings: Settings, tmp_path: Path, what: str
) -> None:
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATICFILES_DIRS = [tmp_path / "sources"]
    source, collected = tmp_path / "sources" / "desk.css", tmp_path / "static" / "desk.css"
    source.parent.mkdir()
    source.write_text("one")
    call_command("prepare", verbosity=0)
    match what:
        case "same":
            collected.write_text("as it was collected")
            os.utime(collected, (0, 0))  # older than its source, so that it would be collected
        case "changed":
            source.write_text("three")
            os.utime(source, (2**31, 2**31))  # collectstatic compares whole seconds
        case "touched":
            os.utime(source, ns=(0, source.stat().st_mtime_ns + 1))
            collected.unlink()
        case "new":
            (source.parent / "inbox.css").write_text("two")
        case "gone":
            (collected.parent / ".collected").unlink()
            collected.unlink()
    call_command("prepare", verbosity=0)
    expected = "as it was collected" if what == "same" else source.read_text()
    assert collected.read_text() == expected
    assert (collected.parent / "inbox.css").exists() == (what == "new")
