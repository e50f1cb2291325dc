"""Says why a job on recorded runs ended early."""

import logging
from collections.abc import Callable

from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, RequestError, Tampered

log = logging.getLogger(__name__)

BROKEN = "The worker met an error, which is in its log."


def problem_of(work: Callable[[], str], job: str) -> str:
    """Return why the job ended early, or an empty text."""
    try:
        return work()
    except RequestError as exc:  # the version is not there, or its rows do not verify
        return str(exc)
    except (Tampered, KeyMissing, CoreError, ObjectStoreDown) as exc:
        return f"The run cannot be read: {exc}."
    except Exception:
        log.exception("%s: failed", job)
        return BROKEN
