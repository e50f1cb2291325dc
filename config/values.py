"""Values of the environment that more than one room of it reads. Each raises BadSetting for what cannot be used."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from config.problems import BadSetting


def secret(variables: Mapping[str, str], name: str) -> str:
    """Given itself, or in the file that NAME_FILE names, so that no listing of the environment shows it."""
    file = f"{name}_FILE"
    path = variables.get(file, "")
    given = variables.get(name, "").strip()
    if path and given:
        raise BadSetting(file, f"and {name} are both set: keep one of them")
    return content(file, path) if path else given


def content(name: str, path: str) -> str:
    """What stands in a file, without the space around it."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadSetting(name, f"cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSetting(name, f"cannot be read: {path} is not text") from error


def web_address(variables: Mapping[str, str], name: str) -> str:
    """Without a slash at its end; empty if it is not set."""
    url = variables.get(name, "").rstrip("/")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise BadSetting(name, "must be an address such as https://directory.example/scim/v2")
    return url


def yes(variables: Mapping[str, str], name: str, default: str = "no") -> bool:
    """Whether it says yes."""
    said = variables.get(name, "").lower() or default
    if said not in ("yes", "no"):
        raise BadSetting(name, f"must be yes or no, not {said!r}")
    return said == "yes"
