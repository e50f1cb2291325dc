"""What can go wrong with agents, told apart by whose fault it is."""


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

    `after` is how many seconds the other side asked to be left alone.
    """

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class NotSealed(AgentsError):
    """A stored secret does not open: it was changed, or moved here from another place."""
