"""What must be there before a process starts; what is not ends it with one line that says what to do."""

import psycopg
import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, NotSupportedError, connection
from django.db.migrations.executor import MigrationExecutor

from runtime import durability, keyring

# What runs that live go on from: the key of each document, and whose it is.
_LIVE = {
    keyring.CONTINUATION: """
        SELECT kept.key_id, kept.run_id AS run FROM runtime_continuation AS kept
        JOIN runtime_run ON runtime_run.id = kept.run_id AND ended_at IS NULL
    """,
    keyring.JOURNAL: """
        SELECT entry.key_id, entry.run_id AS run FROM runtime_run
        JOIN runtime_journalentry AS entry
            ON entry.run_id = runtime_run.id AND entry.position = runtime_run.position
        WHERE ended_at IS NULL AND status <> 'quarantined' AND base < runtime_run.position
    """,
}


def require_database() -> None:
    """End the process unless Postgres answers, is new enough, and has this version's tables."""
    try:
        connection.ensure_connection()
        missing = missing_migrations()
    except NotSupportedError as problem:
        raise _end(f"{_one_line(problem)}: upgrade it, best to Postgres 18") from None
    except DatabaseError as problem:
        raise _end(explained(problem)) from None
    finally:
        connection.close()  # whoever goes on may fork
    if missing:
        raise _end(
            f"the database lacks {missing} of this version's migrations: run `manage.py migrate`"
        )


def require_broker() -> None:
    """End the process unless the broker answers."""
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=2, socket_timeout=5
        ) as client:
            client.ping()
    except redis.AuthenticationError as problem:
        raise _end(
            f"the broker refuses us ({_one_line(problem)}):"
            " look at REDIS_URL and REDIS_PASSWORD_FILE"
        ) from None
    except (redis.RedisError, OSError) as problem:
        raise _end(
            f"the broker does not answer ({_one_line(problem)}): is it running, and is REDIS_URL right?"
        ) from None


def require_keys(*, signing: bool) -> None:
    """End the process unless its keys can be read; with `signing`, also those that sign decisions."""
    try:
        keyring.check(signing=signing)
    except ImproperlyConfigured as problem:
        raise _end(_one_line(problem)) from None


def require_keys_of_live_runs() -> None:
    """End the process if a run that lives was signed with a key it lacks: it could only leave it alone."""
    for purpose, documents in _LIVE.items():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT key_id, min(run::text) FROM ({documents}) AS live"
                " WHERE NOT key_id = ANY(%s) GROUP BY key_id LIMIT 1",
                [list(keyring.ids(purpose))],
            )
            found = cursor.fetchone()
        connection.close()
        if found:
            raise _end(
                f"key {found[0]!r} for {purpose} is not in the ring, and run {found[1]} needs it:"
                " copy the ring of the other machines to KEYS_DIR"
            )


def require_durable_stores() -> None:
    """End the process if Postgres may lose what it has confirmed; say so if the broker may lose hints."""
    problem = durability.problem_of_postgres()
    connection.close()
    if problem:
        raise _end(f"{problem}; set it to on (ABEYANCE_UNSAFE_POSTGRES=yes is for tests alone)")
    durability.warn_of_broker()


def missing_migrations() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def explained(problem: DatabaseError) -> str:
    """One line: what Postgres said, and where to look."""
    said = _one_line(problem.__cause__ or problem)
    if not isinstance(problem.__cause__, psycopg.OperationalError):
        return said
    database = connection.settings_dict
    where = f"{database['HOST'] or 'localhost'}, user {database['USER'] or '(none)'}"
    if "password" in said or "authentication" in said:
        return f"Postgres at {where} refuses us: look at DATABASE_URL and DATABASE_PASSWORD_FILE ({said})"
    if "does not exist" in said:
        return f"Postgres at {where} does not know what DATABASE_URL names: create it ({said})"
    return (
        f"Postgres at {where} does not answer: is it running, and is DATABASE_URL right? ({said})"
    )


def _end(problem: str) -> SystemExit:
    return SystemExit(f"abeyance: {problem}")


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split())
