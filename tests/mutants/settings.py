"""Finds the settings that approvals may depend on where the code defines them: settings.txt has a line for each."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from agents.sdk import agent, tool
from agents.sdk.spec import ToolSpec
from approvals.rules.policy_text import SETTINGS
from config.env.environment import ROOT, EnvironmentVariables
from tests.mutants.tried import SETTINGS_TABLE

CORE = (
    "runtime/core/run/continuation.py",
    "runtime/core/values/limits.py",
    "runtime/core/values/expressions.py",
)
WHOLE = (
    "approvals/rules/policy.py",
    "approvals/web/components/decision_form.py",
)  # constants of any kind


def defined() -> set[str]:
    """Name the keys of a rule, the options of authors, the fields of the environment, and numbers of modules."""
    names = {f"rule.{key}" for key in SETTINGS}
    names |= {f"env.{field.name}" for field in fields(EnvironmentVariables)}
    names |= _options("tool", tool) | _options("with", ToolSpec.with_settings)
    names |= _options("agent", agent)
    for path in (*sorted((ROOT / "approvals").rglob("*.py")), *(ROOT / one for one in CORE)):
        if "migrations" not in path.parts:
            names |= set(_constants(path))
    return names


def others() -> dict[str, str]:
    """Return the settings that do not matter to decisions, with the reason."""
    found, why = dict[str, str](), ""
    for line in SETTINGS_TABLE.read_text("utf-8").splitlines():
        if line.startswith("- "):
            why = line.removeprefix("- ")
        elif re.fullmatch(r"  \S+", line):
            found[line.strip()] = why
    return found


def _options(kind: str, function: Callable[..., Any]) -> set[str]:
    return {f"{kind}.{name}" for name in inspect.signature(function).parameters if name != "self"}


def _constants(path: Path) -> Iterator[str]:
    """Name the constants of a module that are made of numbers, not of texts."""
    module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for node in ast.parse(path.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if value is None or not (str(path.relative_to(ROOT)) in WHOLE or _is_number(value)):
            continue
        for target in targets:
            for one in ast.walk(target) if isinstance(target, ast.AST) else ():
                if isinstance(one, ast.Name) and one.id.isupper():
                    yield f"{module}.{one.id}"


def _is_number(value: ast.AST) -> bool:
    kinds = [type(one.value) for one in ast.walk(value) if isinstance(one, ast.Constant)]
    return str not in kinds and (int in kinds or float in kinds)
