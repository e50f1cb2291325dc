"""Judges one call by its arguments: the author's functions say its risk and whether a person is asked.

Describes calls and errors in one line of plain text that can be journaled.
"""

import inspect
import json
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from agents.errors import DefinitionError
from agents.masked_output import REDACTED
from agents.sdk.spec import ToolSpec
from runtime.core.values.enums import RISKS, Risk
from runtime.core.values.limits import MAX_SENTENCE_VALUE
from runtime.core.values.texts import clean_text, write_on_one_line

LIMIT = 1.0  # seconds of one condition
_as_json = json.JSONEncoder(ensure_ascii=False).encode
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """The risk of one call, whether its tool asks for a person, and the `problem` of a condition that failed."""

    risk: Risk
    approval: bool
    problem: str = ""


def judge(tool: ToolSpec, arguments: Mapping[str, Any]) -> ConditionResult:
    """Return the risk and the approval of a call by its arguments; called again for edited ones, and before the effect.

    A condition that raises, takes longer than LIMIT or returns another type makes the call high risk, and a person is
    asked. A tool without conditions costs nothing here.
    """
    risk, approval = tool.risk, tool.approval
    try:
        if callable(risk):
            level = call_function_in_time(risk, tool, arguments, LIMIT)
            if level not in RISKS:
                raise ValueError(f"{level!r} is not one of {', '.join(Risk)}")
            risk = Risk(level)
        if callable(approval):
            asks = call_function_in_time(approval, tool, arguments, LIMIT)
            if not isinstance(asks, bool):
                raise TypeError(f"{asks!r} is not True or False")
            approval = asks
    except Exception as exc:
        which = "risk" if callable(risk) else "approval"
        # An error may quote a part of a held text, which no one can find and redact.
        error = type(exc).__name__ if tool.holds_text else describe_exception(exc)
        problem = f"The {which} condition of {tool.name} failed: {error}"
        return ConditionResult(risk=Risk.HIGH, approval=True, problem=problem)
    return ConditionResult(risk=risk, approval=approval)


def call_function_in_time(
    function: Callable[..., Any],
    tool: ToolSpec,
    arguments: Mapping[str, Any],
    seconds: float,
) -> Any:
    """Call a function with the arguments that it takes. Raise its error, or TimeoutError.

    It runs in a thread of its own, which is left alone at the time limit.
    """
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    named_arguments = select_arguments(function, tool, arguments)

    def run() -> None:
        try:
            results.put((function(**named_arguments), None))
        except BaseException as exc:
            results.put((None, exc))

    threading.Thread(target=run, name=f"condition of {tool.name}", daemon=True).start()
    try:
        value, problem = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it took longer than {seconds:g} s") from None
    if isinstance(problem, Exception):
        raise problem
    if problem is not None:
        raise RuntimeError(describe_exception(problem))
    return value


def select_arguments(
    function: Callable[..., Any], tool: ToolSpec, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return copies of the arguments that the function takes: all of them if it has `**kwargs`.

    A condition or a precondition that changes one would otherwise change what the others and the tool receive.
    """
    parameters = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    complete = {**tool.defaults, **arguments}
    return deepcopy(
        {name: value for name, value in complete.items() if takes_all or name in parameters}
    )


def check(function: Any, setting: str, argument_names: Collection[str], label: str) -> None:
    """Raise DefinitionError unless this is a synchronous function of some of the tool's arguments."""
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{label}: {setting} must be a function of its arguments, not async")
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or (
            name not in argument_names and parameter.default is parameter.empty
        ):
            raise DefinitionError(
                f"{label}: {setting} takes {name}, which is not an argument of the tool"
            )


def fill_sentence(tool: ToolSpec, args: dict[str, Any]) -> str:
    """Fill these arguments into the tool's sentence, long ones cut, and without secrets.

    The sentence is a heading, a row of a list, a mail; an approval shows all arguments next to it. Characters
    that break a line, are invisible or reverse text are written as code points.
    """
    words = dict.fromkeys(tool.secret_args, REDACTED)
    for name in tool.sentence_args:
        if name not in words:
            value = args[name] if name in args else tool.defaults[name]
            text = value if isinstance(value, str) else _as_json(value)
            cut = text if len(text) <= MAX_SENTENCE_VALUE else f"{text[:MAX_SENTENCE_VALUE]}…"
            words[name] = cut if cut.isascii() and cut.isprintable() else write_on_one_line(cut)
    return tool.sentence.format_map(words)


class CodeEnded(Exception):
    """Code of an author raised an exception that is no `Exception`, such as SystemExit. The message has its type."""


def run_code(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call code of an author. Raise CodeEnded for SystemExit, CancelledError or another that is no `Exception`.

    It would end the thread of its run without a word, and nothing would release the run. In the main thread, which no
    run has, a person or a test may end the code.
    """
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as exc:
        if threading.current_thread() is threading.main_thread():
            raise
        raise CodeEnded(describe_exception(exc)) from exc


def describe_exception(exc: BaseException) -> str:
    """Return type and message: a message alone often says nothing (`KeyError: 'id'`)."""
    message = message_of(exc)
    return message if isinstance(exc, CodeEnded) else clean_text(f"{type(exc).__name__}: {message}")


def message_of(exc: BaseException) -> str:
    """Return the message of an exception, also if the author's class cannot write it."""
    try:
        return clean_text(str(exc))
    except Exception:
        return "its message cannot be read"
