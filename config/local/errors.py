"""What can be wrong with one machine; whoever started it gets one line and no traceback."""


class LocalError(Exception):
    """Base of this room's errors; never raised itself."""


class Refused(LocalError):
    """What was asked for cannot be done as asked: a folder in use, a taken port, a read-only place."""


class NotInstalled(LocalError):
    """A program that an embedded server needs is nowhere to be found."""


class DidNotStart(LocalError):
    """A process ended or stayed silent when it should have been ready; its log says why."""


class Ended(DidNotStart):
    """A process ended before it was ready; the end of its log names the cause."""
