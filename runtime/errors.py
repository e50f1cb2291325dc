"""What can go wrong in the engine. A docstring is the default message; attributes carry the facts."""

from runtime.core.limits import MAX_MATCHED, MAX_UNHEARD


class RuntimeFault(Exception):
    """The base of the engine's errors; never raised itself."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


# The caller's


class BusinessKeyConflict(RuntimeFault):
    """This business key was already used for another input."""


class NoSuchRun(RuntimeFault):
    """There is no such run."""


class NoSuchEntry(RuntimeFault):
    """The run's journal has no such entry."""


class NotQuiescent(RuntimeFault):
    """Nothing can go on from this entry: the run is over then, or an effect is under way or may have happened."""


class NotAtRest(RuntimeFault):
    """A worker has the run, or will soon: only a run that waits and has nothing to take up can be exported."""


class NotQuarantined(RuntimeFault):
    """The run is not in quarantine."""


class NotFailed(RuntimeFault):
    """Only a failed run that retention has not removed can be tried again."""

    def __init__(self, status: str) -> None:
        super().__init__(
            f"The run is {status}: only a failed run that retention has not removed can be tried again."
        )
        self.status = status


class NotImportable(RuntimeFault):
    """The file is not a run that may be taken over."""


class RunKnown(RuntimeFault):
    """This run is here already, or was."""


class TooLarge(RuntimeFault):
    """The run is larger than what an installation takes over."""


class GateNotOpen(RuntimeFault):
    """The gate is not open any more."""


class RunEnded(RuntimeFault):
    """The run is over."""

    def __init__(self, status: str) -> None:
        super().__init__(f"The run is {status} already.")
        self.status = status


class TooManyUnheard(RuntimeFault):
    """The run takes no more messages until its agent has heard some."""

    def __init__(self) -> None:
        super().__init__(
            f"{MAX_UNHEARD} messages to this run are not heard yet, and no more are taken until they are."
        )


class EventConflict(RuntimeFault):
    """This id was already used for another event."""


class TooManyMatched(RuntimeFault):
    """More calls wait for this event than one event may end."""

    def __init__(self) -> None:
        super().__init__(f"More than {MAX_MATCHED} calls wait for this event, and none was ended.")


class StoppedAlready(RuntimeFault):
    """This is stopped already."""


class StopNotOn(RuntimeFault):
    """There is no such stop, or it is over already."""


# A race that another process won


class LeaseLost(RuntimeFault):
    """Another worker has the run: nothing of this one is written any more."""


# The installation's: the run is released untouched and tried again later


class Outdated(RuntimeFault):
    """The run has met a newer version of an agent than this process has."""


class KeyMissing(RuntimeFault):
    """A stored document was signed with a key that is not in the ring."""


class LedgerBroken(RuntimeFault):
    """The ledger of this machine does not verify: no approved call starts on this machine."""


# The data's: the run is parked


class Tampered(RuntimeFault):
    """What is stored is not what was written."""
