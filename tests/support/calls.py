"""What a test does around each call of a function of the product."""

from collections.abc import Callable
from typing import Any

import pytest


def around(
    patch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    *,
    before: Callable[..., Any] = lambda *_, **__: None,
    after: Callable[..., object] = lambda *_, **__: None,
) -> None:
    """Call `before` with the arguments, then the function, then `after` with the result and the arguments.

    If `before` returns something, that is the result in place of a call.
    """
    real = getattr(owner, name)

    def call(*args: Any, **given: Any) -> Any:
        instead = before(*args, **given)
        if instead is not None:
            return instead
        result = real(*args, **given)
        after(result, *args, **given)
        return result

    patch.setattr(owner, name, call)
