"""How much JSON goes into an agent and comes out of a tool."""

import json
from typing import Any

MAX_JSON_BYTES = 64 * 1024


def json_size(value: Any) -> int:
    """The bytes of a JSON value, written compactly."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
