"""Parsers of environment variables that several modules share. Each raises InvalidSetting for a value it cannot use."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from runtime.core.values.budgets import BudgetLimits, InvalidBudget, budget_of, from_form

BUDGET_PREFIX = "SIGNOFF_BUDGET_"
BUDGET_NAMES = ("turns", "tokens", "usd", "seconds")


class InvalidSetting(Exception):
    """An environment variable has an invalid value. The message names it for the operator."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


def secret(variables: Mapping[str, str], name: str) -> str:
    """Read a secret from the variable, or from the file in NAME_FILE, which a listing of variables does not show."""
    file = f"{name}_FILE"
    path = variables.get(file, "")
    value = variables.get(name, "").strip()
    if path and value:
        raise InvalidSetting(file, f"and {name} are both set: keep one of them")
    return content(file, path) if path else value


def content(name: str, path: str) -> str:
    """Read a file, without leading and trailing white space."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSetting(name, f"cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSetting(name, f"cannot be read: {path} is not text") from error


def web_address(variables: Mapping[str, str], name: str) -> str:
    """Read an address, without a slash at its end; empty if it is not set."""
    url = variables.get(name, "").rstrip("/")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise InvalidSetting(name, "must be an address such as https://directory.example/scim/v2")
    return url


def yes(variables: Mapping[str, str], name: str, default: str = "no") -> bool:
    """Read a yes or no."""
    answer = variables.get(name, "").lower() or default
    if answer not in ("yes", "no"):
        raise InvalidSetting(name, f"must be yes or no, not {answer!r}")
    return answer == "yes"


def read_names(
    variables: Mapping[str, str], prefix: str, setting: re.Pattern[str], parts: Sequence[str]
) -> dict[str, str]:
    """Return the variable that names each provider, by the provider's name. Raise InvalidSetting.

    `setting` matches a variable that begins with `prefix`; its first group is the name. A variable ends with a part.
    """
    names = {}
    for variable in sorted(name for name in variables if name.startswith(prefix)):
        if not variables[variable]:
            continue
        match = setting.fullmatch(variable)
        if match is None:
            endings = ", ".join(f"_{part}" for part in parts)
            raise InvalidSetting(
                variable,
                f"is not a known setting: after the provider's name comes one of {endings}",
            )
        names[match[1].lower()] = variable
    return dict(sorted(names.items()))


def read_budget(variables: Mapping[str, str]) -> BudgetLimits | None:
    """Return the budget, or None if no limit is set. Raise InvalidSetting."""
    try:
        return budget_of(
            from_form(
                {name: variables.get(BUDGET_PREFIX + name.upper(), "") for name in BUDGET_NAMES}
            )
        )
    except InvalidBudget as exc:
        raise InvalidSetting(BUDGET_PREFIX + exc.name.upper(), exc.detail) from None
