"""`replace` for the parts of a continuation, several times as fast as `dataclasses.replace`.

For each event the fold changes a run, one of its frames and one of its calls, and each has many fields.
`dataclasses.replace` reads and sets them one by one. These classes keep their fields in a `__dict__`, which is copied
in one step. They have no `__post_init__` that this could skip.
"""

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # the type checker knows the fields of this one
else:
    T = TypeVar("T")

    def replace(one: T, **changes: Any) -> T:
        """Copy `one` with these fields changed. The type checker checks the field names."""
        copy = object.__new__(type(one))
        object.__setattr__(copy, "__dict__", one.__dict__ | changes)
        return copy
