"""Writes a version of a prompt as a YAML file, for review in git, and reads one.

The fields are `prompt`, `note` and `text`. Only plain texts are read: no tag, and no value that YAML would convert.
"""

from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, ScalarNode

from approvals.governance.prompt_list import PromptText
from approvals.rules import plain_yaml
from approvals.rules.plain_yaml import YamlInvalid
from runtime.errors import InvalidInput

MAX_FILE = 256 * 1024  # characters; a text of a prompt has at most a quarter of it
FIELDS = ("prompt", "note", "text")
_TEXT = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """The content of a file."""

    prompt: str
    text: str
    note: str = ""


def written(name: str, one: PromptText) -> str:
    """Return the file of a version."""
    fields = {"prompt": name, **({"note": one.note} if one.note else {}), "text": one.text + "\n"}
    return yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def read(text: str) -> PromptFile:
    """Read a file. Raise InvalidInput naming the field, or `file` with the line."""
    if len(text) > MAX_FILE:
        raise InvalidInput("file", f"has {len(text)} characters, at most {MAX_FILE} are allowed")
    try:
        root = plain_yaml.compose(text)
    except YamlInvalid as exc:
        raise InvalidInput("file", f"has an error in {exc}") from exc
    if not isinstance(root, MappingNode):
        raise InvalidInput("file", f"must have the fields {', '.join(FIELDS)}")
    found: dict[str, str] = {}
    for key, value in root.value:
        name = key.value if isinstance(key, ScalarNode) else "a list"
        if name not in FIELDS:
            raise InvalidInput("file", f"has the field {name[:40]}; allowed: {', '.join(FIELDS)}")
        if name in found:
            raise InvalidInput(name, "is there twice")
        if not isinstance(value, ScalarNode) or value.tag != _TEXT:
            raise InvalidInput(name, f"must be a text, line {value.start_mark.line + 1}")
        found[name] = value.value
    for name in ("prompt", "text"):
        if name not in found:
            raise InvalidInput(name, "is required")
    return PromptFile(**found)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that a review shows their lines."""


def _represent(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)
