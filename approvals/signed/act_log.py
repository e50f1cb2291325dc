"""Logs each change of people and tokens in one line, because audit rows belong to runs."""

import logging

from django.db import transaction

_log = logging.getLogger(__name__)


def record(actor: str | None, act: str) -> None:
    """Log an act of `actor` after the commit. None is the command line of the installation."""
    who = actor or "the command line"
    transaction.on_commit(lambda: _log.info("%s %s", who, act))


def refused(person: str | None, subject: str, code: str) -> None:
    """Log a refused decision, with the person and the reason. The audit of the run has only the first ones."""
    _log.info("%s may not decide on %s: %s", person or "an unknown person", subject, code)
