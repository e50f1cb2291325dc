"""Where events of triggers come from besides the API: folders, streams and buckets that the administrator allows."""

from pathlib import Path, PurePath

from django.conf import settings

from runtime.errors import InvalidInput
from runtime.triggers.events.definition import Definition

FOLDERS = "ABEYANCE_WATCHED_FOLDERS"
STREAMS = "ABEYANCE_STREAMS"
BUCKETS = "ABEYANCE_WATCHED_BUCKETS"


def folders() -> tuple[Path, ...]:
    """Return the folders that triggers may watch, with those below them."""
    found: tuple[Path, ...] = settings.ABEYANCE_WATCHED_FOLDERS
    return found


def streams() -> tuple[str, ...]:
    """Return the streams that triggers may read."""
    found: tuple[str, ...] = settings.ABEYANCE_STREAMS
    return found


def buckets() -> tuple[str, ...]:
    """Return the addresses of buckets that triggers may watch, with all below them."""
    found: tuple[str, ...] = settings.ABEYANCE_WATCHED_BUCKETS
    return found


def allows_bucket(address: str) -> bool:
    """Tell whether the administrator allows this address."""
    return any(address == root or address.startswith(f"{root}/") for root in buckets())


def root_of(folder: str) -> Path | None:
    """Return the allowed folder that holds this one, None without one."""
    return next((root for root in folders() if PurePath(folder).is_relative_to(root)), None)


def require_allowed(one: Definition) -> None:
    """Raise InvalidInput if the administrator does not allow the folder, stream or bucket of a trigger."""
    if one.folder and root_of(one.folder) is None:
        allowed = " or ".join(map(str, folders()))
        raise InvalidInput(
            "folder",
            f"must be {allowed}, or a folder below"
            if allowed
            else f"is not allowed: {FOLDERS} names none",
        )
    if one.stream and one.stream not in streams():
        allowed = " or ".join(streams())
        raise InvalidInput(
            "stream",
            f"must be {allowed}" if allowed else f"is not allowed: {STREAMS} names none",
        )
    if one.bucket and not allows_bucket(one.bucket):
        allowed = " or ".join(buckets())
        raise InvalidInput(
            "bucket",
            f"must be {allowed}, or below" if allowed else f"is not allowed: {BUCKETS} names none",
        )
