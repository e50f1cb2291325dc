"""Evaluates expressions in CEL over JSON facts, with bounds: conditions of policies, filters and mappings of triggers.

CEL has no loops, but one list inside another costs the product of both. So an expression has at most one quantifier,
and inside it only the element of its list. Functions are those listed here: a regular expression, for example, could
take seconds to compile. The rest takes milliseconds for the largest arguments of a call or data of an event.
The language is described at https://cel.dev.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MAX_LENGTH = 2_000
MAX_LIST = 1_000
MAX_SUMS = 5
QUANTIFIERS = ("all", "exists", "exists_one", "existsOne")
FUNCTIONS = ("size", "startsWith", "endsWith", "contains", "has", "int", "double", "string")

_STRINGS = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_QUANTIFIER = re.compile(rf"\.\s*(?:{'|'.join(QUANTIFIERS)})\s*\(\s*(\w+)\s*,")
_NAME = r"\s*\.\s*\w++(?!\s*\()|\s*\[\s*(?:'[^'\n]*'|\"[^\"\n]*\")\s*\]"
_NAMES = re.compile(r"\w+|'[^'\n]*'|\"[^\"\n]*\"")
_BUILDERS = re.compile(r"\.\s*(map|filter)\s*\(")
_OPERATOR = re.compile(r"[^a-zA-Z]*_[^a-zA-Z]*_?|[!@-].*|_")  # as the library names operators
_REFUSED = ("\\", "//", "'''", '"""', "`")


class ExpressionError(Exception):
    """An expression that cannot be used, or that failed for its facts; the message says why."""


class NotBoolean(ExpressionError):
    """A condition that is neither true nor false for its facts."""


def check(text: str, names: tuple[str, ...], large: str) -> None:
    """Raise ExpressionError unless the text is an expression over facts of these names, within the bounds.

    `large` is the fact that may hold lists, so a quantifier has only elements of it inside.
    """
    _compile_program(text, names, large)


def check_condition(
    text: str, names: tuple[str, ...], large: str, samples: Mapping[str, Any]
) -> None:
    """Do the same, and raise ExpressionError for a condition that is not true or false for the samples.

    One that names a fact without a sample, or that fails for the samples, may be so for other facts.
    """
    used_names = set(_compile_program(text, names, large).variables()) & set(names)
    if not used_names <= samples.keys():
        return
    try:
        evaluate_condition(text, {**dict.fromkeys(names), **samples}, names, large)
    except NotBoolean:
        raise
    except ExpressionError:
        if not used_names:
            raise


def list_paths(text: str, fact: str) -> list[tuple[str, ...]]:
    """Return the paths of names that an expression reads below a fact, such as `("user", "level")`."""
    bare = _STRINGS.sub(
        lambda string: string[0] if text[: string.start()].rstrip().endswith("[") else '""', text
    )
    readings = re.finditer(rf"(?<![\w.]){fact}((?:{_NAME})+)", bare)
    return [tuple(name.strip("'\"") for name in _NAMES.findall(reading[1])) for reading in readings]


def evaluate_expression(
    text: str, facts: Mapping[str, Any], names: tuple[str, ...], large: str
) -> Any:
    """Evaluate an expression. Raise ExpressionError if it fails for these facts."""
    program = _compile_program(text, names, large)
    size, pending = 0, list[Any]([facts])  # of the longest list or object
    while pending:
        item = pending.pop()
        if isinstance(item, Mapping):
            size = max(size, len(item))
            pending += item.values()
        elif isinstance(item, list | tuple):
            size = max(size, len(item))
            pending += item
    if size > MAX_LIST:
        raise ExpressionError(f"a list or object has {size} elements, at most {MAX_LIST} are read")
    try:
        return program.execute({name: facts[name] for name in names})
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as exc:  # the library's panics are no Exception
        raise ExpressionError(_describe_error(exc)) from exc


def evaluate_condition(
    text: str, facts: Mapping[str, Any], names: tuple[str, ...], large: str
) -> bool:
    """Evaluate a condition. Raise ExpressionError if it fails for these facts, or is not true or false."""
    result = evaluate_expression(text, facts, names, large)
    if not isinstance(result, bool):
        raise NotBoolean("its result is neither true nor false")
    return result


@lru_cache(256)
def _compile_program(text: str, names: tuple[str, ...], large: str) -> Any:
    """Check the text and compile it. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"has {len(text)} characters, at most {MAX_LENGTH} are allowed")
    for refused in _REFUSED:
        if refused in text:
            raise ExpressionError(f"must not contain {refused}")
    bare = _STRINGS.sub('""', text)
    variable = _read_quantifier(bare, large)
    if bare.count("+") > MAX_SUMS:
        raise ExpressionError(f"must not have more than {MAX_SUMS} signs +")
    import cel  # only processes that judge expressions need it, and it takes 0.2 s

    try:
        program = cel.compile(text)
        variables, functions = set(program.variables()), set(program.functions())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as exc:  # the library's panics are no Exception
        raise ExpressionError(f"is not valid CEL: {_describe_error(exc)}") from exc
    unknown = sorted(variables - set(names) - {variable})
    if unknown:
        raise ExpressionError(f"names {unknown[0]}, but the facts are {', '.join(names)}")
    unknown = sorted(name for name in functions - set(FUNCTIONS) if not _OPERATOR.fullmatch(name))
    if unknown:
        raise ExpressionError(f"calls {unknown[0]}, but the functions are {', '.join(FUNCTIONS)}")
    return program


def _read_quantifier(bare: str, large: str) -> str:
    """Return the variable of the quantifier, empty without one. `bare` is the expression without its strings."""
    if built := _BUILDERS.search(bare):
        raise ExpressionError(
            f"must not use {built[1]}: the quantifiers are {', '.join(QUANTIFIERS)}"
        )
    quantifiers = list(_QUANTIFIER.finditer(bare))
    if len(quantifiers) > 1:
        raise ExpressionError(f"has {len(quantifiers)} quantifiers, at most one is allowed")
    if not quantifiers:
        return ""
    start, end, depth = quantifiers[0].end(), len(bare), 1
    for at in range(start, len(bare)):
        depth += {"(": 1, ")": -1}.get(bare[at], 0)
        if depth == 0:  # at the parenthesis that closes the quantifier
            end = at
            break
    if re.search(rf"\b{large}\b", bare[start:end]):
        raise ExpressionError(
            f"must use only {quantifiers[0][1]}, and not {large}, inside its quantifier"
        )
    return quantifiers[0][1]


def _describe_error(exc: BaseException) -> str:
    """Return the first line of an error, short."""
    if isinstance(exc, KeyError):
        return f"there is no {exc.args[0]}"
    text = str(exc) or type(exc).__name__
    return text.splitlines()[0][:200]
