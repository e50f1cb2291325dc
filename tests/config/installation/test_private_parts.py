"""No class of ours overrides or reads private names of a library's class; ruff checks other uses (SLF001)."""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator

import pytest

ROOMS = ("agents", "approvals", "config", "runtime")
# Django's own word for options is `_meta`, and its documentation lists `_default_manager` and `_state`.
DOCUMENTED = {"_meta", "_default_manager", "_state"}


def _classes() -> Iterator[type]:
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            if ".migrations." in found.name or found.name.endswith(("__main__", "child")):
                continue
            module = importlib.import_module(found.name)
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__ == found.name:
                    yield one


def _is_ours(one: type) -> bool:
    return one.__module__.split(".")[0] in ROOMS


def _private_names(one: type) -> tuple[set[str], set[str]]:
    """Return the private names that the class defines or sets, and those that it reads from itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
    defined, read = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defined.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                read.add(name)
    return set(filter(_is_private, defined)), set(filter(_is_private, read))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _taken_from_others(one: type) -> set[str]:
    bases = [base for base in one.__mro__[1:] if base is not object]
    others = [base for base in bases if not _is_ours(base)]
    defined, read = _private_names(one) if others else (set(), set())
    ours = defined.union(*(_private_names(base)[0] for base in bases if others and _is_ours(base)))
    theirs = {name for base in others for name in vars(base)}
    return ((defined & theirs) | (read - ours)) - DOCUMENTED


@pytest.mark.filterwarnings(
    "ignore:No directory at"
)  # static files, as the web process is imported
def test_no_class_uses_private_names_of_libraries() -> None:
    taken = {f"{one.__module__}.{one.__name__}": _taken_from_others(one) for one in _classes()}
    assert len(taken) > 300
    assert {name: found for name, found in taken.items() if found} == {}
