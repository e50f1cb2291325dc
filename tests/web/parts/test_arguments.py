"""The arguments of a call as a page lists them, and their labels."""

from typing import Any

import pytest

from approvals.web.components.arguments import arguments


def test_every_argument_is_listed_even_outside_the_schema() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}}
    shown = [
        (each.name, each.is_unknown, each.is_given)
        for each in arguments({"z": 1, "a": "y"}, schema)
    ]
    assert shown == [("a", False, True), ("z", True, True), ("b", False, False)]
    senseless: list[Any] = [None, True, [], {"properties": []}, {"properties": None}]
    for nothing in senseless:
        (only,) = arguments({"a": 1}, nothing)
        assert (only.name, only.value) == ("a", 1)
    (only,) = arguments(["a"], {})
    assert only.value == ["a"]


@pytest.mark.parametrize(
    ("titles", "labels"),
    [
        ({"full_name": "Full Name"}, ["Full name"]),
        ({"full_name": None}, ["full_name"]),
        ({"amount": "Discount"}, ["Discount (amount)"]),
        ({"amount": "x" * 61}, ["amount"]),
        ({"amount": " "}, ["amount"]),
        ({"amount": 7}, ["amount"]),
        ({"a_b": "A B", "A_b": "A B"}, ["A b (a_b)", "A b (A_b)"]),
    ],
)
def test_a_label_is_the_title_and_the_name_stands_behind_another(
    titles: dict[str, Any], labels: list[str]
) -> None:
    schema = {"properties": {name: {"title": title} for name, title in titles.items()}}
    rows = arguments(dict.fromkeys(titles, 1), schema)
    assert labels == [f"{row.label} ({row.name})" if row.is_renamed else row.label for row in rows]
