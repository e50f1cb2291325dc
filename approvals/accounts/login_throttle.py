"""Guessing passwords is slow: so many wrong ones per name and address, and per address as a whole.

django-axes keeps the count. Here it counts before the password is looked at and takes that back once
it was right, so that guesses sent all at once are no more than guesses sent in a row; and whoever
gets in clears their own name alone, or an account of one's own would buy guesses at all the others.
Nothing here knows whether a name exists. Tokens of the API are too long to be guessed.
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
    """The handler of django-axes that counts first."""

    def is_allowed(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> bool:
        """Whether the password may be looked at. If so, this counts as a wrong one until it was right."""
        name = _name(credentials)
        with transaction.atomic():
            _lock_address(request)
            request.axes_again_at = locked_until(request, name)  # type: ignore[attr-defined]
            if request.axes_again_at is not None:  # type: ignore[attr-defined]
                _log.warning("too many wrong passwords from %s for %.64r", address(request), name)
                return False
            self.clean_expired_user_attempts(request, credentials)
            _count(request, name)
        return True

    def user_login_failed(
        self, sender: Any, credentials: Any, request: Any = None, **_: Any
    ) -> None:
        """It is counted already."""

    def reset_user_attempts(
        self, request: HttpRequest, credentials: dict[str, Any] | None = None
    ) -> int:
        return int(_attempts(request).filter(username=_name(credentials)).delete()[0])


def reauthenticate(request: HttpRequest, username: str, password: str) -> User | None:
    """Somebody who is logged in and proves it once more, throttled like a login."""
    person = authenticate(request, username=username, password=password)
    if not isinstance(person, User):
        return None
    AxesProxyHandler.get_implementation().reset_user_attempts(request, {"username": username})
    return person


def refused_until(request: HttpRequest) -> datetime | None:
    """When to try again, if this very request was refused unseen."""
    until: datetime | None = getattr(request, "axes_again_at", None)
    return until


def locked_until(request: HttpRequest, username: str) -> datetime | None:
    """When a password may be tried again, None for now."""
    recent = _attempts(request).filter(attempt_time__gt=_now(request) - settings.AXES_COOLOFF_TIME)
    limits = (
        (recent.filter(username=username), settings.AXES_FAILURE_LIMIT),
        (recent, settings.LOGIN_FAILURES_PER_ADDRESS),
    )
    times = [moment for rows, limit in limits if (moment := _free_at(rows, limit)) is not None]
    return max(times, default=None)


def address(request: HttpRequest) -> str | None:
    """Where a request comes from; of an IPv6 address the half that a household or office shares.

    Clients write into X-Forwarded-For what they like. Its last entry is the proxy's own, if there is one.
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
    """When enough of these are old enough, None if they are fewer than the limit."""
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
    """One at a time per address, until the count is committed; the password is looked at after that."""
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
