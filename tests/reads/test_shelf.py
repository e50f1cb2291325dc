"""The shelf of kept values: each lent once, no more than fit, none for too long."""

import pytest

from runtime.reads import run_page
from runtime.reads.run_page import MAX_SECONDS, Shelf


def test_a_value_is_lent_to_one_page_at_a_time() -> None:
    values = Shelf[str](10)
    values.put("a", "first", 1)
    assert (values.take("a"), values.take("a")) == ("first", None)


def test_values_that_no_page_took_for_long_make_room() -> None:
    values = Shelf[str](10)
    for key in "abc":
        values.put(key, key, 4)
    values.put("a", "a", 4)
    assert [values.take(key) for key in "abc"] == ["a", None, "c"]
    values.put("d", "too large", 11)
    assert values.take("d") is None


def test_values_are_not_kept_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clock = Shelf[str](10), 0.0
    monkeypatch.setattr(run_page, "monotonic", lambda: clock)
    values.put("a", "a", 4)
    values.put("b", "b", 4)
    clock = MAX_SECONDS
    assert values.take("a") is None
    values.put("c", "c", 1)
    assert not values.take("b")
