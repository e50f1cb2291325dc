"""`manage.py lift_hold RUN --as NAME --reason WHY`: lift the legal hold of a run."""

from runtime.control.archive.legal_hold import lift
from runtime.management.run_command import AgainCommand


class Command(AgainCommand):
    """Lifts the legal hold of a run."""

    help = "Lift the legal hold of a run."
    act = staticmethod(lift)
    who = "an admin"
    outcome = "is under no legal hold"
