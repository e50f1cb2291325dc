"""Reads plain YAML of people: without tags, anchors and directives, and within limits of depth and size.

The parser takes a time that grows with the square of the depth, so the limits are checked while it reads.
"""

from typing import Any

import yaml
from yaml.nodes import Node

MAX_DEPTH = 64
MAX_VALUES = 10_000  # with the names of fields

_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_REFUSED = (yaml.AliasToken, yaml.AnchorToken, yaml.TagToken, yaml.DirectiveToken)


class YamlInvalid(Exception):
    """A text that is not plain YAML, or exceeds a limit; `line` counts from 1."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(f"line {line}: {detail}")
        self.line = line
        self.detail = detail


def compose(text: str) -> Node | None:
    """Return the nodes of the text, None for an empty one. Raise YamlInvalid at the first error."""
    try:
        return yaml.compose(text, Loader=_LimitedLoader)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        reason = getattr(exc, "problem", None) or "it has a character that is not allowed"
        raise YamlInvalid(mark.line + 1 if mark else 1, f"is not valid YAML: {reason}") from exc


class _LimitedLoader(yaml.SafeLoader):
    _depth = 0
    _values = 0

    def get_token(self) -> Any:
        """Return the next token. Raises YamlInvalid if it is refused or exceeds a limit."""
        scanner: Any = super()  # the library's stubs have no types here
        token = scanner.get_token()
        line = token.start_mark.line + 1
        if isinstance(token, _REFUSED):
            raise YamlInvalid(line, "tags, anchors and directives are not allowed")
        self._depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        self._values += isinstance(token, (*_OPENING, yaml.ScalarToken))
        if self._depth > MAX_DEPTH:
            raise YamlInvalid(line, f"is nested deeper than {MAX_DEPTH} lists and objects")
        if self._values > MAX_VALUES:
            raise YamlInvalid(line, f"has more than {MAX_VALUES} values")
        return token
