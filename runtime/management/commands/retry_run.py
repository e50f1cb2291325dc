"""`manage.py retry_run RUN --as NAME --reason WHY`: continue a failed run from its last entry."""

from runtime.control.interventions import retry
from runtime.management.command import AgainCommand


class Command(AgainCommand):
    """Retries a failed run."""

    help = "Continue a failed run from where it failed, without repeating a call that may have happened."
    act = staticmethod(retry)
    who = "its requester, or an admin"
    outcome = "is tried again"
