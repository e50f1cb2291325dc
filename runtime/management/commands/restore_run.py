"""`manage.py restore_run RUN --as NAME --reason WHY`: put an archived run back into Postgres."""

from runtime.control.transfer import restore
from runtime.management.command import AgainCommand


class Command(AgainCommand):
    """Restores an archived run."""

    help = "Put an archived run back into Postgres. It stays there as long again as SIGNOFF_ARCHIVE says."
    act = staticmethod(restore)
    who = "an admin"
    outcome = "is in Postgres again"
