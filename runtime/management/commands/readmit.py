"""`manage.py readmit RUN --as NAME --reason WHY`: let a run out of quarantine."""

from runtime.control.release import release
from runtime.management.again import AgainCommand


class Command(AgainCommand):
    help = (
        "Let a run out of quarantine: everything that is stored of it is verified, and if all of it holds"
        " the run goes on where it stood; one that killed its workers goes on alone in a process."
    )
    act = staticmethod(release)
    who = "an admin"
    done = "is out of quarantine"
