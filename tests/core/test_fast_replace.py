"""Our `replace` gives the same results as the library's for every part of a continuation."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Call, Continuation, Frame
from runtime.core.fast_replace import replace

PARTS = [
    (Call(id="c1.0", tool="look", args={}), {"attempt": 2, "result": [1]}),
    (Frame(id="0", agent="ada", fingerprint="f", prompt="p"), {"turn": 3, "outcome": "done"}),
    (Continuation(run=UUID(int=7)), {"position": 5, "frames": {}, "head": "mac"}),
]


@pytest.mark.parametrize(("one", "changes"), PARTS)
def test_a_copy_has_the_changes_and_everything_else(one: Any, changes: dict[str, Any]) -> None:
    assert replace(one, **changes) == dataclasses.replace(one, **changes)
    assert replace(one) == one


@pytest.mark.parametrize(("one", "changes"), PARTS)
def test_replace_leaves_the_original_unchanged(one: Any, changes: dict[str, Any]) -> None:
    before = dataclasses.asdict(one)
    copy = replace(one, **changes)
    assert dataclasses.asdict(one) == before
    assert vars(copy) is not vars(one)


@pytest.mark.parametrize(("one", "changes"), PARTS)
def test_a_copy_is_as_frozen_as_the_first(one: Any, changes: dict[str, Any]) -> None:
    copy = replace(one, **changes)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(copy, next(iter(changes)), None)
    assert not hasattr(copy, "__post_init__")  # which would be passed by
