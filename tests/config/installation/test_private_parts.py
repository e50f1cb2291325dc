"""No class of ours overrides or reads private names of a library's class; ruff checks other uses (SLF001)."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache

import pytest

ROOMS = ("agents", "approvals", "config", "runtime")
# Django's own word for options is `_meta`, and its documentation lists `_default_manager` and `_state`.
WITH_A_PROVIDER = "approvals.people.oidc"  # its library loads only where people sign in at one
DOCUMENTED = {"_meta", "_default_manager", "_state"}
PRIVATE = r"_(?!_)\w+"


def _classes() -> Iterator[type]:
    for room in ROOMS:
        package = importlib.import_module(room)
        for found in pkgutil.walk_packages(package.__path__, f"{room}."):
            name = found.name
            if ".migrations." in name or name.endswith(("__main__", "child", WITH_A_PROVIDER)):
                continue
            module = importlib.import_module(found.name)
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__ == found.name:
                    yield one


def _is_ours(one: type) -> bool:
    return one.__module__.split(".")[0] in ROOMS


def _taken_from_others(one: type) -> set[str]:
    bases = [base for base in one.__mro__[1:] if base is not object]
    others = [base for base in bases if not _is_ours(base)]
    if not others:
        return set()
    defined, used = _private_names(one)
    ours = defined.union(*(_private_names(base)[0] for base in bases if _is_ours(base)))
    theirs = {name for base in others for name in vars(base)}
    return ((defined & theirs) | (used - ours)) - DOCUMENTED


@cache
def _sources(module: str) -> dict[str, str | None]:
    """Return the source of each class. For every class, inspect would parse its whole module again."""
    text = inspect.getsource(importlib.import_module(module))
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return {one.name: ast.get_source_segment(text, one, padded=True) for one in classes}


def _private_names(one: type) -> tuple[set[str], set[str]]:
    """Return the private names that the class defines or sets, and those that it uses of itself."""
    source = _sources(one.__module__)[one.__qualname__] or ""
    functions = re.findall(rf"\bdef ({PRIVATE})\(", source)
    values = re.findall(rf"(?m)(?:^ +|\b(?:self|cls)\.)({PRIVATE})(?:: [^=\n]+)? = ", source)
    used = re.findall(rf"\b(?:self|cls)\.({PRIVATE})", source)
    return {*functions, *values}, set(used)


@pytest.mark.filterwarnings(
    "ignore:No directory at"
)  # static files, as the web process is imported
def test_no_class_uses_private_names_of_libraries() -> None:
    taken = {f"{one.__module__}.{one.__name__}": _taken_from_others(one) for one in _classes()}
    assert len(taken) > 300
    assert {name: found for name, found in taken.items() if found} == {}
