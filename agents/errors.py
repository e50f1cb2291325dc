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
    """Certainly nothing happened outside: the call may be made again without harm."""
