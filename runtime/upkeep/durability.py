"""Checks the settings of Postgres and the broker: durability, time limits, eviction, and the role of the process."""

import logging

import redis
from django.conf import settings
from django.db import connection

log = logging.getLogger(__name__)

# Each setting, with the loss if it is off.
POSTGRES = {
    "fsync": "a crash of the machine would lose decisions that people were told are kept",
    "full_page_writes": "a crash of the machine could leave pages that are half written",
    "synchronous_commit": "a crash of Postgres would lose decisions that people were told are kept",
}
TIME_LIMITS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
EVICTING = ("allkeys", "volatile")


def problem_of_postgres() -> str | None:
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


def problem_of_time_limits() -> str | None:
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
