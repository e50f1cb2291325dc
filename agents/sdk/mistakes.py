"""Collects the mistakes in authors' modules, each with its file and line.

The first one ends the start of a worker, and `manage.py agents check` lists them all. So while a module is read, the
mistakes of invalid tools and agents are noted, not raised, and the rest of the module is read.

A setting of another kind than its annotation says is such a mistake; pydantic checks it.
"""

import inspect
import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agents.errors import DefinitionError

P = ParamSpec("P")
T = TypeVar("T")

OURS = (
    "agents",
    "approvals",
    "config",
    "runtime",
)  # a mistake is in their caller, not in these files


# What authors write for a value of these classes.
KINDS = {
    "AgentSpec": "an agent made by agent(…)",
    "BaseModel": "a Pydantic model, such as `class Order(BaseModel): number: str`",
    "Sequence": "a list",
    "ThreadMemory": "last(…) or summary(…)",
    "ToolSpec": "a function with @tool",
}

_INSTALL = (
    "name its package in a file, and start with AGENTS_REQUIREMENTS=that file (docs/how-to/release-agents.md), or put"
    " the module into AGENTS_DIR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """`location` is `file:line`, or empty where there is none."""

    module: str
    location: str
    problem: str

    def __str__(self) -> str:
        prefix = f"{self.location}: " if self.location else ""
        return f"cannot load agents from {self.module}: {prefix}{self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModule:
    """A module that is being imported. `folder` is the author's, or empty."""

    module: str
    folder: str
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, problem: str, location: str = "") -> None:
        """Note a mistake at a place."""
        self.mistakes.append(Mistake(module=self.module, location=location, problem=problem))

    def add_exit(self, exc: BaseException) -> None:
        """Note the exception that ended the import."""
        if isinstance(exc, SyntaxError) and exc.filename:
            self.add(f"{type(exc).__name__}: {exc.msg}", f"{exc.filename}:{exc.lineno}")
            return
        location = self._find_location(reversed([*traceback.walk_tb(exc.__traceback__)]))
        if isinstance(exc, ModuleNotFoundError) and exc.name:
            self.add(f"there is no module {exc.name}: {_INSTALL}", location)
            return
        message = " ".join(str(exc).split())
        self.add(f"{type(exc).__name__}: {message}", location)

    def add_definition_error(self, exc: DefinitionError) -> None:
        """Note the mistake in the current definition of a tool or agent."""
        self.add(str(exc), self._find_location(traceback.walk_stack(None)))

    def _find_location(self, frames: Iterable[tuple[FrameType, int]]) -> str:
        """Return the first line of a traceback that is in the author's module."""
        mine = (f"{one.f_code.co_filename}:{line}" for one, line in frames if self._is_authors(one))
        return next(mine, "")

    def _is_authors(self, frame: FrameType) -> bool:
        if self.folder and Path(self.folder) in Path(frame.f_code.co_filename).parents:
            return True
        name = str(frame.f_globals.get("__name__", ""))
        top = self.module.partition(".")[0]
        if top in OURS:  # the modules that come with Signoff
            return name == self.module or name.startswith(f"{self.module}.")
        return name.partition(".")[0] == top


class Unusable:
    """Takes the place of an invalid tool or agent."""

    def with_settings(self, **settings: object) -> "Unusable":
        """Return itself, so that one mistake is reported once."""
        return self

    def __iter__(self) -> Iterator["Unusable"]:
        """Yield itself, where several tools were expected."""
        yield self


_reading: ContextVar[ImportedModule | None] = ContextVar("reading", default=None)


@contextmanager
def collect_mistakes(reading: ImportedModule) -> Iterator[None]:
    """Note mistakes instead of raising them."""
    token = _reading.set(reading)
    try:
        yield
    finally:
        _reading.reset(token)


def record_mistakes(define: Callable[P, T]) -> Callable[P, T]:
    """Wrap a defining function so that it notes its mistake while a module is read, instead of raising it."""

    @wraps(define)
    def defined(*args: P.args, **kwargs: P.kwargs) -> T:
        name = kwargs.get("name") or getattr(args[0] if args else None, "name", "")
        label = f"{define.__name__} {name}".rstrip()
        try:
            try:
                settings = inspect.signature(define).bind(*args, **kwargs).arguments
            except TypeError as exc:
                raise DefinitionError(f"{label}: {exc}") from exc
            check_settings(define, settings, label)
            return define(*args, **kwargs)
        except DefinitionError as exc:
            reading = _reading.get()
            if reading is None:
                raise
            reading.add_definition_error(exc)
            return cast("T", Unusable())

    return defined


def check_settings(define: Callable[..., Any], settings: Mapping[str, Any], label: str) -> None:
    """Raise DefinitionError for a setting that is not of the kind, or within the bounds, that `define` annotates."""
    try:
        build_settings_check(define).validate_python(settings)
    except ValidationError as exc:
        problems = [line for line in exc.errors() if not isinstance(line["input"], Unusable)]
        if not problems:
            return
        setting = str(problems[0]["loc"][0])
        of_setting = [line for line in problems if line["loc"][0] == setting]
        # Each member of a union has a problem. The deepest one is in the member that the author meant.
        depth = max(len(line["loc"]) for line in of_setting)
        deepest = [line for line in of_setting if len(line["loc"]) == depth]
        # An index may be the name of a union's member.
        indices = (
            index
            for index in deepest[0]["loc"][1:]
            if isinstance(index, int) or hasattr(settings[setting], index)
        )
        path = ".".join(map(str, [setting, *indices]))
        requirements = " or ".join(dict.fromkeys(map(_describe_requirement, deepest)))
        value = getattr(deepest[0]["input"], "__name__", reprlib.repr(deepest[0]["input"]))
        raise DefinitionError(f"{label}: {path} must be {requirements}, not {value}") from exc


@cache
def build_settings_check(define: Callable[..., Any]) -> TypeAdapter[Any]:
    """Return the check of the arguments of a function by its annotations."""
    make: Any = TypedDict  # as in `signature.read_signature`
    kinds = make(define.__name__, get_type_hints(define, include_extras=True), total=False)
    kinds.__pydantic_config__ = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return TypeAdapter(kinds)


def _describe_requirement(problem: Mapping[str, Any]) -> str:
    kinds = [kind for kind in problem.get("ctx", {}).values() if kind in KINDS]
    if kinds or problem["type"] == "sequence_str":
        return KINDS[kinds[0] if kinds else "Sequence"]
    return str(problem["msg"]).removeprefix("Input should be ")
