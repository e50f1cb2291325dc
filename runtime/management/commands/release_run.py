"""`manage.py release_run RUN --as NAME --reason WHY`: release a run from quarantine."""

from runtime.control.interventions import release
from runtime.management.command import AgainCommand


class Command(AgainCommand):
    """Releases a run from quarantine."""

    help = "Release a run from quarantine if its stored data verifies."
    act = staticmethod(release)
    who = "an admin"
    outcome = "is out of quarantine"
