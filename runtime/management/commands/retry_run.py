"""`manage.py retry_run RUN --as NAME --reason WHY`: have a failed run go on from where it failed."""

from runtime import actions
from runtime.management.again import AgainCommand


class Command(AgainCommand):
    help = (
        "Have a failed run go on from where it failed, as the same run: what it did and was allowed stays,"
        " its model is asked again, and no call is repeated that may have happened."
    )
    act = staticmethod(actions.retry)
    who = "who retries it"
    done = "is tried again"
