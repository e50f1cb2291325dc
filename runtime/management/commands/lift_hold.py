"""`manage.py lift_hold RUN --as NAME --reason WHY`: lift the legal hold of a run."""

from runtime.control.interventions import lift_hold
from runtime.management.command import AgainCommand


class Command(AgainCommand):
    """Lifts the legal hold of a run."""

    help = "Lift the legal hold of a run."
    act = staticmethod(lift_hold)
    who = "an admin"
    outcome = "is under no legal hold"
