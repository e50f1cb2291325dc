"""Errors of the launcher. The starter sees each as one line without a traceback."""


class LocalError(Exception):
    """Base of the launcher's errors; never raised itself."""


class Refused(LocalError):
    """The request cannot be fulfilled: a folder is in use, a port is taken, a disk is read-only."""


class NotInstalled(LocalError):
    """The program of an embedded server is not installed."""


class DidNotStart(LocalError):
    """A process ended or did not answer in time; its log has the cause."""


class Ended(DidNotStart):
    """A process ended before it was ready; the end of its log names the cause."""
