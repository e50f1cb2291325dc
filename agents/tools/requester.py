"""Messages to the requester: a tool with which an agent says something in the middle of its run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from agents.sdk import mistakes, tool
from agents.sdk.spec import Seconds, ToolSpec
from runtime.core.values.enums import Risk

MAX_TOLD = 4_000  # characters; fewer than KEPT_INLINE bytes, so a page has the whole text

Message = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_TOLD,
        description="the whole message, as the requester reads it",
    ),
]


@mistakes.record_mistakes
def tell_requester(
    *,
    approval: bool | Callable[..., bool] = True,
    risk: Risk | str | Callable[..., Risk | str] = Risk.LOW,
    name: str = "tell_requester",
    description: str = "Send a message to the person who started the run, before your answer. Returns the message.",
    expires_in: Seconds | None = None,
    deny_reasons: Sequence[str] = (),
) -> ToolSpec:
    """Make a tool with which an agent sends messages to the requester of its run, who reads them on the run's page.

    Until a message is released the requester sees that it waits, but not its text, and never reads a denied one.
    `approval` and `risk` may be functions of `message`; they, `expires_in` and `deny_reasons` are as for `tool`. An
    agent with several such tools gives each a `name`, and a `description` for the model. Raises DefinitionError if the
    definition is invalid.
    """

    def tell(message: str) -> str:
        return message

    tell.__name__, tell.__doc__ = name, description
    tell.__annotations__ = {"message": Message, "return": Message}
    spec = tool(
        effect="read",
        approval=approval,
        risk=risk,
        sentence="Send a message to the requester",
        expires_in=expires_in,
        secret_args=("message",),
        deny_reasons=deny_reasons,
    )(tell)
    return replace(spec, holds_text=True) if isinstance(spec, ToolSpec) else spec
