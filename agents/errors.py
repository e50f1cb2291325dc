"""Errors of agents, one type for each party that can correct them."""

from runtime.core.values.enums import FailureCause


class AgentsError(Exception):
    """The base of the errors of this package. Never raised itself."""


class DefinitionError(AgentsError):
    """A tool or an agent is defined in a way that cannot work. Its author must change it."""


class RegistryError(AgentsError):
    """The configured modules define no usable set of agents. The worker must not start."""


class ToolError(AgentsError):
    """The tool refuses, for a reason that the model can use. The model is given the text."""


class NotDone(AgentsError):
    """Nothing happened outside, so the call may be repeated.

    `after` is the number of seconds that the other side asked to wait. `cause` is one that the tool's retry policy may
    name.
    """

    def __init__(
        self,
        message: str = "",
        *,
        after: float | None = None,
        cause: FailureCause | str = FailureCause.PROVIDER,
    ) -> None:
        super().__init__(message)
        self.after = after
        self.cause = FailureCause(cause)


class CredentialRefused(NotDone):
    """The other side refused the credential as expired or withdrawn, and nothing happened.

    The worker fetches a new one once, and repeats the call.
    """


class CredentialMissing(AgentsError):
    """A person must act before a worker can get a credential. The text says which, and what to do."""


class DefinitionChanged(AgentsError):
    """Another system describes a tool differently than its author accepted, and nothing was sent.

    A person must accept the change before the call can start.
    """


class NotSealed(AgentsError):
    """A stored secret cannot be opened: it was changed, or copied from another place."""
