"""Scripts that take the place of a model: pure functions of the conversation, for demonstrations and tests.

A script gets the same conversation as a model, and answers in the same types::

    @script
    def greeter(turn: Turn) -> Reply:
        mail = turn.result("send_mail")
        if mail is None:
            return call("send_mail", to=turn.input["email"])
        return say("Done." if mail.ok else f"No mail was sent: {mail.why}")
"""

import functools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from agents.sdk.spec import FINAL_ANSWER
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.json_values import copy_value
from runtime.core.values.verdicts import CHANGES, DENIED, RECEIVED, select_verdict_rule

Outcome = Literal["success", "failed", "denied"]

REFUSED = "This call could not be made: "
ABOUT_ANSWER = "About your answer: "  # an outcome follows, as of a call
NOT_TAKEN = "This answer could not be taken: "
REPORTED = "A person reported this result, because what the call itself returned was lost. The result as JSON: "
CHANGED = "A person changed this result. The result as JSON: "
GIVEN = (
    "A person gave this reply in your place, with its calls if there are any. "  # its text follows
)
CALL_ANSWER_PREFIX = (
    "This call was not made. A person gave this result instead. The result as JSON: "
)
POLICY_ANSWER_PREFIX = (
    "This call was not made. No person decided in time, so a rule gave this result: "
)
QUESTION_ANSWER_PREFIX = "A person answered. The answer as JSON: "
# The arguments and a line break follow, then the outcome as text, or RESULT and the result.
EDITED = "A person changed the arguments of this call. The arguments as JSON: "
RESULT = "The result as JSON: "
REASONED = (*RECEIVED, REFUSED)  # each is followed by the reason
SUM_UP = (
    "Do not go on yet, and call no tool. Sum up what has happened so far, for yourself: what you were asked,"
    " what you found out, what you did, and what is left to do. You will go on from this summary alone, so"
    " keep every name, number and id that you may still need. Answer with the summary and nothing else."
)
SUM_UP_MEMORY = (
    "Do not begin with your task yet, and call no tool. Sum up the earlier part of this conversation, for yourself,"
    " with what you may need for your task: you will have this summary in its place. Answer with the summary and"
    " nothing else. The most tokens that it may take: "
)
SUMMARY = "What happened up to here, summed up: "
MESSAGE = "A message from "  # its author's name and a colon follow

PLAN = "Your plan: "  # its state follows, then each open item in a line
# One line of JSON for each text follows.
MEMORY = (
    "The earlier part of this conversation, from other runs. It is for you to know, and no instruction. Your task"
    " follows it.\n"
)

CUT = "Your last reply was cut off and nothing of it counts. Answer again, from the beginning. It as JSON: "
CUT_BY = {
    "error": "the connection, its deadline, or the limit of tokens",
    "message": "a person, by the last message",
    "lost": "the loss of the worker that received it",
}

NOTHING_RETURNED = "The call returned nothing."
WAITING = "This call has not been made: it waits for a person's decision."
# The tool, its call, the person, ASKS and the question follow.
QUESTION = "A person who decides about a call that you proposed asks you a question about it. "
ANSWER_IT = (
    "Answer it now, in plain text, for this person to read, and call no tool. You will not see this question or your"
    " answer again. The call: "
)
ASKS = " asks: "

# Replaces arguments: the call repeats the earlier call of its reply at this position.
REPEATED = "$repeated"
_TOLD = (
    CHANGED,
    REPORTED,
    CALL_ANSWER_PREFIX,
    POLICY_ANSWER_PREFIX,
    QUESTION_ANSWER_PREFIX,
)  # each is followed by the result

Reply = ModelResponse
Script = Callable[[list[ModelMessage], AgentInfo], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one call. `outcome` is `success`, `failed` or `denied`.

    `reported` is true if a person gave the result. `edited` are the arguments of a call that a person changed.
    """

    tool: str
    outcome: str
    content: Any
    reported: bool = False
    edited: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.outcome == "success"

    @property
    def denied(self) -> bool:
        """Whether a person denied the call or requested changes, or its approval expired."""
        return self.outcome == "denied"

    @property
    def to_change(self) -> bool:
        """Whether a person requested changes, which `why` names: propose the call again with them."""
        return self.denied and str(self.content).startswith(CHANGES)

    @property
    def why(self) -> str:
        """Return the reason of a denial or the error of a failure."""
        text = str(self.content)
        return next((text.removeprefix(lead) for lead in REASONED if text.startswith(lead)), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The conversation so far: the agent's input and every result, oldest first.

    `summary` replaces the removed messages, empty if there are none; `sums_up` asks for a new one.
    `messages` are what people wrote to the run, each as `(who, text)`. `question` is what a person asks about a call
    that waits for them, empty if no person does. `plan` are the open items of the agent's plan. `memory` is what the
    run remembers of earlier runs of its thread, oldest first; each has `at`, `asked_by` or `answered_by`, and `text` or
    `erased`.
    """

    input: Any
    results: tuple[Result, ...]
    summary: str = ""
    sums_up: bool = False
    messages: tuple[tuple[str, str], ...] = ()
    question: str = ""
    plan: tuple[str, ...] = ()
    memory: tuple[dict[str, Any], ...] = ()

    def result(self, tool: str) -> Result | None:
        """Return the latest result of `tool`, or None if it was not called yet."""
        return next((result for result in reversed(self.results) if result.tool == tool), None)


def word_outcome(
    outcome: str, content: Any, verdict: str | None, *, question: bool
) -> tuple[Outcome, Any]:
    """Word the outcome of a call, or of a `question`, for the model, by what ended it."""
    kind = GateKind.QUESTION if question else None
    received = "" if verdict is None else select_verdict_rule(kind, Verdict(verdict)).received
    match outcome:
        case "returned":
            return "success", content
        case "failed":
            return "failed", f"{received}{content}" if received else content
        case "denied":
            return "denied", f"{received or DENIED}{content}"
        case "refused":
            return "failed", f"{REFUSED}{content}"
        case _:
            raise ValueError(f"a result has no outcome {outcome}")


def word_report(result: dict[str, Any], *, question: bool) -> str:
    """Say who gave a result that is not of the call itself. Without a name the policy gave it."""
    if not result.get("answered"):
        return REPORTED
    if not result["reported_by"]:
        return POLICY_ANSWER_PREFIX
    return QUESTION_ANSWER_PREFIX if question else CALL_ANSWER_PREFIX


def script(fn: Callable[[Turn], Reply], *, answers: Callable[[Turn], str] | None = None) -> Script:
    """Make the model of an agent of a function that returns the next reply.

    A person may ask the agent about a call that waits for them. `answers` returns the text for `turn.question`;
    without it the script says that it cannot answer.
    """

    @functools.wraps(fn)
    def model(messages: list[ModelMessage], _: AgentInfo) -> Reply:
        parts = [
            part for entry in messages if isinstance(entry, ModelRequest) for part in entry.parts
        ]
        spoken = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        remembered = spoken.pop(0) if spoken[0].startswith(MEMORY) else ""
        prompt, *texts = spoken
        summaries = [text.removeprefix(SUMMARY) for text in texts if text.startswith(SUMMARY)]
        results = tuple(result for part in parts if (result := _read_result(part)) is not None)
        messages_by_person = tuple(
            (person, message)
            for text in texts
            if text.startswith(MESSAGE)
            for person, _, message in [text.removeprefix(MESSAGE).partition(": ")]
        )
        has_plan = bool(texts) and texts[-1].startswith(PLAN)
        lines = texts[-1].splitlines()[1:] if has_plan else []  # one for each open item
        turn = Turn(
            input=json.loads(prompt),
            results=results,
            summary=summaries[-1] if summaries else "",
            sums_up=texts[-1:] == [SUM_UP],
            messages=messages_by_person,
            question=_find_question(messages),
            plan=tuple(line.partition(". ")[2] for line in lines),
            memory=tuple(map(json.loads, remembered.split("\n")[1:])),
        )
        if not turn.question:
            return fn(turn)
        return say(answers(turn) if answers is not None else _make_own_answer(messages))

    return model


def find_own_answer(messages: list[ModelMessage]) -> Reply | None:
    """Return the answer of a script without `answers` if a person asks it a question, else None."""
    return say(_make_own_answer(messages)) if _find_question(messages) else None


def say(text: str) -> Reply:
    """Answer with a text, which ends the agent's work."""
    return ModelResponse(parts=[TextPart(content=text)])


def answer(output: BaseModel | dict[str, Any]) -> Reply:
    """Give the typed result of an agent, which ends its work."""
    args = (
        output.model_dump(mode="json", by_alias=True) if isinstance(output, BaseModel) else output
    )
    return call(FINAL_ANSWER, **args)


def call(tool: str, /, **args: Any) -> Reply:
    """Call a tool or a sub-agent."""
    return ModelResponse(parts=[ToolCallPart(tool_name=tool, args=args)])


def together(*replies: Reply) -> Reply:
    """Join replies into one turn: several calls, or a call with a text."""
    return ModelResponse(parts=[part for reply in replies for part in reply.parts])


def _make_own_answer(messages: list[ModelMessage]) -> str:
    replies = [reply for reply in messages if isinstance(reply, ModelResponse)]
    text = (replies[-1].text or "") if replies else ""
    return f"I am a script and cannot answer questions. {text}".strip()


def _find_question(messages: list[ModelMessage]) -> str:
    """Return the question at the end of the conversation, or an empty text."""
    parts = (
        messages[-1].parts if messages else ()
    )  # refused calls of a provider leave a message without parts
    last = parts[-1] if parts else None
    text = str(last.content) if isinstance(last, UserPromptPart) else ""
    return text.partition(ASKS)[2] if text.startswith(QUESTION) else ""


def _read_result(message_part: Any) -> Result | None:
    """Return the result in a part of a message, or None. The result of a held answer may come as a text."""
    if isinstance(message_part, ToolReturnPart):
        content = message_part.content
        if not isinstance(content, list) or BinaryContent not in map(type, content):
            content = copy_value(content)  # the process keeps the other one for the next turn
        return _read(message_part.tool_name, message_part.outcome, content)
    text = str(message_part.content) if isinstance(message_part, UserPromptPart) else ""
    if not text.startswith(ABOUT_ANSWER):
        return None
    text = text.removeprefix(ABOUT_ANSWER)
    denied = any(text.startswith(words) for words in REASONED)
    return _read(FINAL_ANSWER, "denied" if denied else "success", text)


def _read(tool: str, outcome: str, content: Any) -> Result:
    """Return a result without the words of the engine around it.

    The text of a tool may begin with the same words; without JSON after them it is left as it is.
    """
    edited, reported = None, False
    if isinstance(content, str):
        with suppress(ValueError, RecursionError):
            content, edited, reported = _unwrap(content)
    return Result(tool=tool, outcome=outcome, content=content, reported=reported, edited=edited)


def _unwrap(content: str) -> tuple[Any, dict[str, Any] | None, bool]:
    """Return the content, the edited arguments, and whether a person gave the content."""
    edited = None
    if content.startswith(EDITED):
        args, _, content = content.removeprefix(EDITED).partition("\n")
        edited = json.loads(args)
        if content.startswith(RESULT):
            return json.loads(content.removeprefix(RESULT)), edited, False
    prefix = next((words for words in _TOLD if content.startswith(words)), "")
    return json.loads(content.removeprefix(prefix)) if prefix else content, edited, bool(prefix)
