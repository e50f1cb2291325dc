"""`manage.py hold_run RUN --as NAME --reason WHY`: put a run under a legal hold."""

from runtime.control.interventions import hold
from runtime.management.command import AgainCommand


class Command(AgainCommand):
    """Puts a run under a legal hold."""

    help = "Put a run under a legal hold: nothing of it is erased or archived until the hold is lifted."
    act = staticmethod(hold)
    who = "an admin"
    outcome = "is under a legal hold"
