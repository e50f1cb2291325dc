"""What can go wrong with agents, told apart by whose fault it is."""

from runtime.core.enums import Blame


class AgentsError(Exception):
    """The base of this room's errors; never raised itself."""


class DefinitionError(AgentsError):
    """A tool or an agent is written in a way that cannot work; its author has to change it."""


class RegistryError(AgentsError):
    """The configured modules do not add up to a set of agents; the worker must not start."""


class ToolError(AgentsError):
    """The tool's answer is no, for a reason the model can use: the text is told to the model."""


class NotDone(AgentsError):
    """Certainly nothing happened outside: the call may be made again without harm.

    `after` is how many seconds the other side asked to be left alone; `blame` is whose fault it is, which
    the tool's retry policy may ask about.
    """

    def __init__(
        self,
        message: str = "",
        *,
        after: float | None = None,
        blame: Blame | str = Blame.PROVIDER,
    ) -> None:
        super().__init__(message)
        self.after = after
        self.blame = Blame(blame)


class NotSealed(AgentsError):
    """A stored secret does not open: it was changed, or moved here from another place."""
