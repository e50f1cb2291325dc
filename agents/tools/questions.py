"""Questions to people: a tool with which an agent asks a person for a value of a declared type."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from agents.errors import DefinitionError, ToolError
from agents.sdk import mistakes, tool
from agents.sdk.spec import Seconds, ToolSpec

MAX_QUESTION = 2_000  # characters

Question = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_QUESTION,
        description="the whole question, with what a person needs to know to answer it",
    ),
]


@mistakes.record_mistakes
def ask_person(
    answer: Any = str,
    *,
    name: str = "ask_person",
    description: str = "Ask a person, and wait for the answer. Returns the answer.",
    expires_in: Seconds | None = None,
    deny_reasons: Sequence[str] = (),
) -> ToolSpec:
    """Make a tool with which an agent asks a person. The run waits for the answer, which becomes the call's result.

    `answer` is the type of the answer: a text, a number, an enum, a Pydantic model or a list of these. The person gets
    a form for it, and the web process checks the value against its JSON Schema. The model gives the question alone.
    An agent with several questions gives each a `name`, and a `description` for the model. `expires_in` and
    `deny_reasons` are as for `tool`: a person may decline to answer. Do not ask for secrets, because the answer is
    stored as it is. Raises DefinitionError if the definition is invalid.
    """
    if answer in (Any, object, None):
        raise DefinitionError(f"tool {name}: name the type of the answer, such as str")

    def ask(question: str) -> Any:
        raise ToolError("a person answers in place of this function")

    ask.__name__, ask.__doc__ = name, description
    ask.__annotations__ = {"question": Question, "return": answer}
    spec = tool(
        effect="read",
        approval=True,
        sentence="The agent asks: {question}",
        expires_in=expires_in,
        deny_reasons=deny_reasons,
    )(ask)
    return replace(spec, question=True) if isinstance(spec, ToolSpec) else spec
