"""Limits failed logins per username and address, and per address, and first notices per person; hashes passwords.

Each attempt is counted before the password is checked and uncounted if it was right, so parallel guesses are limited
like sequential ones. A successful login clears only the count of its own username: otherwise an attacker with an
account could reset the counts of others. The result does not depend on whether the username exists. API tokens are
not throttled, because they are too long to be guessed. allauth counts in the cache, of which each process has its own.
"""

import logging
from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.http import HttpRequest

from approvals import clock
from approvals.models import LoginFailures
from runtime.core.values.limits import MAX_PERSON

_log = logging.getLogger(__name__)
# In place of an address: codes of second factors and first notices are counted for the person alone.
ANYWHERE, NOTICES = "any", "notices"
MAX_FIRST_NOTICES = 10  # of a person in LOGIN_COOLOFF


class Throttle:
    """An authentication backend that stops a throttled login before the one that checks its password."""

    def authenticate(
        self, request: HttpRequest | None, username: str = "", password: str | None = None
    ) -> None:
        """Count a failure until the password is right. Raise PermissionDenied if the limit is reached."""
        if request is None:
            raise PermissionDenied
        # No user has a longer name, and Postgres could not index it.
        username = username[:MAX_PERSON]
        if not _count_attempt(request, address(request) or "", username):
            raise PermissionDenied


def reauthenticate(request: HttpRequest, username: str, password: str) -> User | None:
    """Check the password of a logged-in person again, throttled like a login. None if it is wrong or throttled."""
    person = authenticate(request, username=username, password=password)
    if not isinstance(person, User):
        return None
    forget(request, username)
    return person


def forget(request: HttpRequest, username: str) -> None:
    """Clear the failures of a name from this address, because its password was right."""
    _select_failures(address(request) or "").filter(username=username).delete()


def count_code(request: HttpRequest, username: str) -> bool:
    """Count a failure until the code of a second factor is right. Return False if the limit is reached."""
    return _count_attempt(request, ANYWHERE, username)


def forget_codes(username: str) -> None:
    """Clear the wrong codes of a person, because the last one was right."""
    _select_failures(ANYWHERE).filter(username=username).delete()


def find_refusal_end(request: HttpRequest) -> datetime | None:
    """Return when to try again if this request was throttled, else None."""
    until: datetime | None = getattr(request, "login_refused_until", None)
    return until


def _find_lock_end(client: str, username: str, now: datetime) -> datetime | None:
    recent = _select_failures(client).filter(at__gt=now - settings.LOGIN_COOLOFF)
    per_name = MAX_FIRST_NOTICES if client == NOTICES else settings.LOGIN_FAILURES_PER_NAME
    limits = [(recent.filter(username=username), per_name)]
    if client not in (ANYWHERE, NOTICES):
        limits.append((recent, settings.LOGIN_FAILURES_PER_ADDRESS))
    times = [
        moment for rows, limit in limits if (moment := _find_free_time(rows, limit)) is not None
    ]
    return max(times, default=None)


def address(request: HttpRequest) -> str | None:
    """Return the client's address; of an IPv6 address the /64 network, which one household or office shares.

    Clients can forge X-Forwarded-For, except its last entry, which the proxy appends.
    """
    client = str(request.META.get("REMOTE_ADDR", ""))
    if settings.BEHIND_PROXY:
        client = request.META.get("HTTP_X_FORWARDED_FOR", client).rpartition(",")[2].strip()
    try:
        ip = ip_address(client)
    except ValueError:
        return None
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or ip_network((int(ip), 64), strict=False).network_address)


def _find_free_time(rows: QuerySet[LoginFailures], limit: int) -> datetime | None:
    """Return when the failures in the window drop below the limit, None if they are below it now."""
    counted = 0
    for row in rows.order_by("-at"):
        counted += row.failures
        if counted >= limit:
            free_at: datetime = row.at + settings.LOGIN_COOLOFF
            return free_at
    return None


def _count_attempt(request: HttpRequest, client: str, username: str) -> bool:
    """Count a failure of a name from this address; return False if the limit is reached."""
    until = count(client, username)
    request.login_refused_until = until  # type: ignore[attr-defined]
    if until is not None:
        message = "Login from %s for %.64r: too many wrong passwords"
        _log.warning(message, address(request), username)
    return until is None


@transaction.atomic
def count(client: str, username: str) -> datetime | None:
    """Count one more of a name; return when to try again if the limit is reached.

    The address is locked until the count is committed. A password is checked after that.
    """
    subject = f"{client} {username}" if client in (ANYWHERE, NOTICES) else client
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"login from {subject}"]
        )
    now = clock.read_time()
    until = _find_lock_end(client, username, now)
    if until is not None:
        return until
    # Without those that another login is deleting, or the two could wait for each other.
    old = LoginFailures.objects.select_for_update(skip_locked=True)
    old = old.filter(at__lt=now - settings.LOGIN_COOLOFF)
    LoginFailures.objects.filter(pk__in=old.values("pk")).delete()
    rows = _select_failures(client).filter(username=username)
    if not rows.update(failures=F("failures") + 1, at=now):
        LoginFailures.objects.create(address=client, username=username, failures=1, at=now)
    return None


def _select_failures(client: str) -> QuerySet[LoginFailures]:
    return LoginFailures.objects.filter(address=client)


class Hasher(PBKDF2PasswordHasher):
    """Django's hasher, except that a login does not replace a stored hash, because the hash is signed."""

    def must_update(self, encoded: str) -> bool:
        """Return False: a stored hash is never replaced."""
        return False
