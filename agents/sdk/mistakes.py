"""Collects the mistakes in authors' modules, each with its file and line.

The first one ends the start of a worker, and `manage.py agents check` lists them all. So while a module is read, the
mistakes of invalid tools and agents are noted, not raised, and the rest of the module is read.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import ParamSpec, TypeVar, cast

from agents.errors import DefinitionError

P = ParamSpec("P")
T = TypeVar("T")

OURS = (
    "agents",
    "approvals",
    "config",
    "runtime",
)  # a mistake is in their caller, not in these files


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
def collecting(reading: ImportedModule) -> Iterator[None]:
    """Note mistakes instead of raising them."""
    token = _reading.set(reading)
    try:
        yield
    finally:
        _reading.reset(token)


def recording(define: Callable[P, T]) -> Callable[P, T]:
    """Wrap a defining function so that it notes its mistake while a module is read, instead of raising it."""

    @wraps(define)
    def defined(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return define(*args, **kwargs)
        except DefinitionError as exc:
            reading = _reading.get()
            if reading is None:
                raise
            reading.add_definition_error(exc)
            return cast("T", Unusable())

    return defined
