"""Checks the requirements of a process before it starts, and ends it with one line that says what to do.

A server that is still starting, as after a power cut, has STARTUP_TIMEOUT seconds to answer. Some settings of Postgres
and the broker only cause a warning.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psycopg
import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, NotSupportedError, OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from runtime.keyring import files, purposes

log = logging.getLogger(__name__)

T = TypeVar("T")
STARTUP_TIMEOUT = 10.0  # seconds for a server that does not answer

CHECK_SECONDS = (
    "2s"  # limits the query for the keys of live runs: a worker must start even if there are many
)
PAUSE_SECONDS = 0.2  # seconds between two attempts

# The keys of the stored documents that live runs need, and the run of each.
_LIVE = {
    purposes.CONTINUATION: """
        SELECT kept.key_id, kept.run_id AS run FROM runtime_storedcontinuation AS kept
        JOIN runtime_run ON runtime_run.id = kept.run_id AND ended_at IS NULL
    """,
    purposes.JOURNAL: """
        SELECT entry.key_id, entry.run_id AS run FROM runtime_run
        JOIN runtime_journalentry AS entry
            ON entry.run_id = runtime_run.id AND entry.position = runtime_run.position
        WHERE ended_at IS NULL AND status <> 'quarantined' AND base < runtime_run.position
    """,
}

# Each setting, with the loss if it is off.
POSTGRES = {
    "fsync": "a crash of the machine would lose decisions that people were told are kept",
    "full_page_writes": "a crash of the machine could leave pages that are half written",
    "synchronous_commit": "a crash of Postgres would lose decisions that people were told are kept",
}
TIME_LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
EVICTING = ("allkeys", "volatile")


def with_database(work: Callable[[], T]) -> T:
    """Return the result of `work`. Retry it while Postgres is unreachable; end the process after STARTUP_TIMEOUT."""

    def tried() -> T:
        try:
            connection.ensure_connection()
            return work()
        finally:
            connection.close()  # the caller may fork, and the connection may be broken

    try:
        return _retry_until("Postgres", tried, _is_transient)
    except NotSupportedError as problem:
        raise _end_process(
            f"{_format_one_line(problem)}: upgrade it, best to Postgres 18"
        ) from None
    except DatabaseError as problem:
        raise _end_process(explain_problem(problem)) from None


def require_database() -> None:
    """End the process unless Postgres answers, is new enough, limits time, and has this version's tables."""
    unlimited = with_database(find_time_limit_problem)
    if unlimited:
        raise _end_process(unlimited)
    missing = with_database(count_missing_migrations)
    if missing:
        raise _end_process(
            f"the database lacks {missing} of this version's migrations: run `manage.py migrate`"
        )
    with_database(warn_of_superuser)


def require_broker() -> None:
    """End the process unless the broker answers."""
    try:
        _retry_until(
            "the broker", _reach_broker, lambda exc: not isinstance(exc, redis.AuthenticationError)
        )
    except redis.AuthenticationError as problem:
        raise _end_process(
            f"the broker refuses us ({_format_one_line(problem)}):"
            " look at REDIS_URL and REDIS_PASSWORD_FILE"
        ) from None
    except (redis.RedisError, OSError) as problem:
        raise _end_process(
            f"the broker does not answer ({_format_one_line(problem)}): is it running, and is REDIS_URL right?"
        ) from None


def require_keys(*, signing: bool) -> None:
    """End the process unless its keys can be read; with `signing`, also those that sign decisions."""
    try:
        files.check(signing=signing)
    except ImproperlyConfigured as problem:
        raise _end_process(_format_one_line(problem)) from None


def require_keys_of_live_runs() -> None:
    """End the process if a live run needs a key that is missing here: a worker could not advance the run.

    The check stops after two seconds. A worker that claims such a run later leaves it unchanged and logs it.
    """
    for purpose in _LIVE:
        missing = with_database(partial(_find_missing_key, purpose))
        if missing:
            key, run = missing
            raise _end_process(
                f"key {key!r} for {purpose} is not in the ring, and run {run} needs it:"
                " copy the ring of the other machines to KEYS_DIR"
            )


def require_durable_stores() -> None:
    """End the process if Postgres may lose confirmed decisions; log a warning if the broker may lose hints."""
    problem = with_database(find_postgres_problem)
    if problem:
        raise _end_process(
            f"{problem}; set it to on (SIGNOFF_UNSAFE_POSTGRES=yes is for tests alone)"
        )
    warn_of_broker()


def count_missing_migrations() -> int:
    """Return how many migrations of this version the database lacks."""
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def explain_problem(problem: DatabaseError) -> str:
    """Return one line with the error of Postgres and the setting to check."""
    message = _format_one_line(problem.__cause__ or problem)
    if not isinstance(problem.__cause__, psycopg.OperationalError):
        return message
    database = connection.settings_dict
    server = f"{database['HOST'] or 'localhost'}, user {database['USER'] or '(none)'}"
    if _is_refusal(message):
        return f"Postgres at {server} refuses us: look at DATABASE_URL and DATABASE_PASSWORD_FILE ({message})"
    if _has_no_host(message):
        return f"Postgres at {server} does not know what DATABASE_URL names: create it ({message})"
    return f"Postgres at {server} does not answer: is it running, and is DATABASE_URL right? ({message})"


def find_postgres_problem() -> str | None:
    """Return the setting of Postgres that could lose confirmed decisions, or None."""
    if settings.SIGNOFF_UNSAFE_POSTGRES:
        return None
    with connection.cursor() as cursor:
        for name, cost in POSTGRES.items():
            cursor.execute("SELECT current_setting(%s)", [name])
            value = cursor.fetchone()[0]
            if value in ("off", "local"):
                return f"Postgres has {name} = {value}: {cost}"
    return None


def find_time_limit_problem() -> str | None:
    """Return the time limit that this connection requested and lacks, or None."""
    with connection.cursor() as cursor:
        for name in TIME_LIMITS:
            cursor.execute("SELECT current_setting(%s)", [name])
            if cursor.fetchone()[0] == "0":
                return (
                    f"a connection to Postgres has {name} = 0, though the process asks for a limit: a pooler"
                    " drops it; set it there (docs/how-to/scale.md, PgBouncer)"
                )
    return None


def is_superuser() -> bool:
    """Return whether this process logs in to Postgres as a superuser. Append-only triggers do not stop superusers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        (superuser,) = cursor.fetchone()
    return bool(superuser)


def warn_of_superuser() -> None:
    """Log a warning if this process logs in as a superuser."""
    if not settings.SIGNOFF_UNSAFE_POSTGRES and is_superuser():
        log.warning(
            "This process logs in to Postgres as a superuser: give it a role of its own (docs/how-to/install.md, Roles)"
        )


def warn_of_broker() -> None:
    """Log a warning if the broker may evict hints. The sweeper would send them again, seconds later."""
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5
        ) as client:
            policy = str(client.info("memory").get("maxmemory_policy", ""))
    except (redis.RedisError, OSError):
        return  # its operator may hide that setting
    if policy.startswith(EVICTING):
        log.warning("Broker: its maxmemory-policy is %s. Use noeviction, or hints are lost", policy)


def _retry_until(service: str, look: Callable[[], T], may_come: Callable[[Exception], bool]) -> T:
    """Return the result of `look`. Retry transient errors until STARTUP_TIMEOUT, then raise the last one."""
    deadline = time.monotonic() + STARTUP_TIMEOUT
    warned = False
    while True:
        try:
            return look()
        except (DatabaseError, redis.RedisError, OSError) as problem:
            if time.monotonic() > deadline or not may_come(problem):
                raise
            if not warned:
                log.warning("Waiting for %s: %s", service, _format_one_line(problem))
                warned = True
        time.sleep(PAUSE_SECONDS)  # a bounded retry: a service sends no signal when it is ready


def _find_missing_key(purpose: str) -> tuple[str, str] | None:
    """Return a key id that is missing here and a live run that was signed with it; None if there is none."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [CHECK_SECONDS])
            cursor.execute(
                f"SELECT key_id, min(run::text) FROM ({_LIVE[purpose]}) AS live"
                " WHERE NOT key_id = ANY(%s) GROUP BY key_id LIMIT 1",
                [list(files.list_key_ids(purpose))],
            )
            row: tuple[str, str] | None = cursor.fetchone()
            return row
    except OperationalError as problem:
        if not isinstance(problem.__cause__, psycopg.errors.QueryCanceled):
            raise
        log.warning("Keys of %s: not checked for all live runs, there are too many", purpose)
        return None


def _is_transient(problem: Exception) -> bool:
    message = _format_one_line(problem)
    away = isinstance(problem.__cause__, psycopg.OperationalError)
    return away and not _is_refusal(message) and not _has_no_host(message)


def _is_refusal(message: str) -> bool:
    return "password" in message or "authentication" in message


def _has_no_host(message: str) -> bool:
    return "does not exist" in message


def _reach_broker() -> None:
    with redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5
    ) as client:
        client.ping()


def _end_process(problem: str) -> SystemExit:
    return SystemExit(f"signoff: {problem}")


def _format_one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split())
