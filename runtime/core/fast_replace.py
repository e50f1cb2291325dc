"""`replace` for the parts of a continuation: `dataclasses.replace`, several times as fast.

The fold changes a run, one of its frames and one of its calls for each event, and each has many fields. The
library's reads and sets them one by one. These classes keep their fields in a `__dict__` instead of slots,
which is copied in one go; they have no `__post_init__` that this would pass by.
"""

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["replace"]

if TYPE_CHECKING:
    from dataclasses import replace  # the type checker knows the fields of this one
else:
    T = TypeVar("T")

    def replace(one: T, **changes: Any) -> T:
        """A copy of `one` with these fields changed. The type checker sees to it that it has them."""
        copy = object.__new__(type(one))
        object.__setattr__(copy, "__dict__", one.__dict__ | changes)
        return copy
