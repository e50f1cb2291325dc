"""Limits failed logins per username and address, and per address.

django-axes stores the counts. Each attempt is counted before the password is checked and uncounted if it was right, so
parallel guesses are limited like sequential ones. A successful login clears only the count of its own username:
otherwise an attacker with an account could reset the counts of others. The result does not depend on whether the
username exists. API tokens are not throttled, because they are too long to be guessed.
"""

import logging
from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest

_log = logging.getLogger(__name__)


class Handler(AxesDatabaseHandler):  # type: ignore[misc] # axes says nothing of its types
    """A django-axes handler that counts an attempt before the password is checked."""

    def is_allowed(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
        """Tell whether the password may be checked. If so, count a failure until the password is right."""
        name = _name(credentials)
        with transaction.atomic():
            _lock_address(request)
            request.axes_again_at = locked_until(request, name)  # type: ignore[attr-defined]
            if request.axes_again_at is not None:  # type: ignore[attr-defined]
                _log.warning(
                    "Login from %s for %.64r: too many wrong passwords", address(request), name
                )
                return False
            self.clean_expired_user_attempts(request, credentials)
            _count(request, name)
        return True

    def user_login_failed(
        self, sender: Any, credentials: Any, request: Any = None, **_: Any
    ) -> None:
        """Do nothing: `is_allowed` has counted the attempt."""

    def reset_user_attempts(
        self, request: HttpRequest, credentials: dict[str, Any] | None = None
    ) -> int:
        """Delete the counts of this username at this address, after a successful login. Return their number."""
        return int(_attempts(request).filter(username=_name(credentials)).delete()[0])


def reauthenticate(request: HttpRequest, username: str, password: str) -> User | None:
    """Check the password of a logged-in person again, throttled like a login. None if it is wrong or throttled."""
    person = authenticate(request, username=username, password=password)
    if not isinstance(person, User):
        return None
    AxesProxyHandler.get_implementation().reset_user_attempts(request, {"username": username})
    return person


def refused_until(request: HttpRequest) -> datetime | None:
    """Return when to try again if this request was throttled, else None."""
    until: datetime | None = getattr(request, "axes_again_at", None)
    return until


def locked_until(request: HttpRequest, username: str) -> datetime | None:
    """Return when a password may be tried again, None if now."""
    recent = _attempts(request).filter(attempt_time__gt=_now(request) - settings.AXES_COOLOFF_TIME)
    limits = (
        (recent.filter(username=username), settings.AXES_FAILURE_LIMIT),
        (recent, settings.LOGIN_FAILURES_PER_ADDRESS),
    )
    times = [moment for rows, limit in limits if (moment := _free_at(rows, limit)) is not None]
    return max(times, default=None)


def address(request: HttpRequest) -> str | None:
    """Return the client's address; of an IPv6 address the /64 network, which one household or office shares.

    Clients can forge X-Forwarded-For, except its last entry, which the proxy appends.
    """
    told = str(request.META.get("REMOTE_ADDR", ""))
    if settings.BEHIND_PROXY:
        told = request.META.get("HTTP_X_FORWARDED_FOR", told).rpartition(",")[2].strip()
    try:
        found = ip_address(told)
    except ValueError:
        return None
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or ip_network((int(found), 64), strict=False).network_address)


def _free_at(rows: QuerySet[AccessAttempt], limit: int) -> datetime | None:
    """Return when the failures in the window drop below the limit, None if they are below it now."""
    counted = 0
    for at, failures in rows.order_by("-attempt_time").values_list(
        "attempt_time", "failures_since_start"
    ):
        counted += failures
        if counted >= limit:
            free_at: datetime = at + settings.AXES_COOLOFF_TIME
            return free_at
    return None


def _lock_address(request: HttpRequest) -> None:
    """Lock the address until the count is committed. The password is checked after that."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"login from {address(request)}"],
        )


def _count(request: HttpRequest, username: str) -> None:
    attempt, fresh = _attempts(request).get_or_create(
        username=username,
        ip_address=address(request),
        user_agent="",
        defaults={"failures_since_start": 1},
    )
    if not fresh:
        attempt.failures_since_start = F("failures_since_start") + 1
        attempt.attempt_time = _now(request)
        attempt.save(update_fields=["failures_since_start", "attempt_time"])


def _attempts(request: HttpRequest) -> QuerySet[AccessAttempt]:
    found: QuerySet[AccessAttempt] = AccessAttempt.objects.filter(ip_address=address(request))
    return found


def _now(request: HttpRequest) -> datetime:
    now: datetime = request.axes_attempt_time  # type: ignore[attr-defined]
    return now


def _name(credentials: dict[str, Any] | None) -> str:
    return str((credentials or {}).get("username") or "")
