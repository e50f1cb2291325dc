"""Health endpoints: whether this process is up, and whether the installation can run agents."""

from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runtime.reads import workers
from runtime.upkeep import startup

_BEAT = timedelta(seconds=10)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 without any check."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if every check holds, else 503. The body lists the checks, and warnings about safety."""
    checks: dict[str, bool] = {}
    for name, check in _CHECKS.items():
        # Without a database the other checks fail too, and each would wait for its timeout.
        checks[name] = checks.get("database", True) and _passes(check)
    warnings = [name for name, warns in _WARNINGS.items() if checks["database"] and _passes(warns)]
    if checks["migrations"]:
        warnings += [f"{name}_late" for name in workers.late_loops()]
    body = {"checks": checks, "warnings": warnings}
    return JsonResponse(body, status=200 if all(checks.values()) else 503)


def _passes(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except DatabaseError:
        return False


def _database() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


# Warnings of this web process; docs/how-to/monitor.md explains them.
_WARNINGS: dict[str, Callable[[], bool]] = {
    "superuser": startup.is_superuser,
    "no_ledger": lambda: settings.SIGNOFF_LEDGER is None,
}

_CHECKS: dict[str, Callable[[], bool]] = {
    "database": _database,
    "migrations": lambda: startup.missing_migrations() == 0,
    "worker": lambda: workers.worker_beats(within=_BEAT),
    "partitions": workers.has_month,
}
