"""Look-alike letters are described; texts in one alphabet are not reported."""

import pytest

from runtime.core.values.lookalikes import compute_skeleton, describe


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "billing@p\u0430ypal.com",
            ["Latin and Cyrillic", "U+0430", "looks like \u201ca\u201d", "xn--"],
        ),
        ("ACME Su\u0440\u0440lies GmbH", ["Su\u0440\u0440lies", "Cyrillic", "U+0440"]),
        ("g\u03bf\u03bfgle", ["Latin and Greek", "U+03BF"]),
        ("eve@paypa1.com", ["paypa1.com", "the digit 1", "letter l"]),
        ("https://g00gle.com/login", ["g00gle.com", "the digit 0", "letter o"]),
        ("paypa1.com", ["the digit 1"]),
        ("https://xn--pypal-4ve.com/", ["punycode for", "p\u0430ypal", "Cyrillic"]),
        ("https://xn--bcher-kva.example/", ["punycode for", "b\u00fccher"]),
        ("\u0430\u0440\u0440\u04cf\u0435.com", ["Cyrillic", "look like \u201capple\u201d"]),
        ("Pay \u0410\u0421\u041c\u0415 Supplies", ["Cyrillic", "look like \u201cACME\u201d"]),
        ("https://shop.example@evil.example/x", ["leads to evil.example:", "only a user name"]),
        ("\uff41dmin", ["fullwidth", "looks like \u201ca\u201d"]),
        ({"to": ["p\u0430ypal"]}, ["Cyrillic"]),
        ({"p\u0430ypal": 1}, ["Cyrillic"]),
    ],
)
def test_lookalike_characters_are_named(value: object, said: list[str]) -> None:
    (note,) = describe(value)
    for words in said:
        assert words in note


@pytest.mark.parametrize(
    "value",
    [
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
        "Hello \u043c\u0438\u0440",
        "The \u041c\u043e\u0441\u043a\u0432\u0430 office",
        "\u0445\u0430\u043e\u0441",
        "\u0395\u03bb\u03bb\u03ac\u03b4\u03b1",
        "T\u30b7\u30e3\u30c4 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u05e9\u05dc\u05d5\u05dd",
        "\u00d1\u00ebw-H\u00efr\u00eb Stra\u00dfe \u0141\u00f3d\u017a \u0131\u015f\u0131k",
        "5 \u03bcs, \u0394t, n\u00ba 1, 20 \u00b5m",
        "server1.example.org, web01.de, report1.pdf, user1, route 10",
        "user1@example.org",
        "https://example.com/p1age0",
        {"level": 1, "when": None, "ok": True},
    ],
)
def test_honest_texts_are_left_alone(value: object) -> None:
    assert describe(value) == []


def test_many_are_counted_and_a_long_text_is_looked_at_in_part() -> None:
    many = " ".join(f"p\u0430y{n}x" for n in range(2, 10))
    notes = describe(many)
    assert len(notes) == 6
    assert notes[-1] == "And 3 more like these."
    assert describe("p\u0430y " + "x" * 100, limit=20)[-1] == (
        "Only the first 20 characters were checked."
    )
    assert describe("x" * 100 + " p\u0430y", limit=20) == []


def test_texts_that_look_alike_have_one_skeleton() -> None:
    assert compute_skeleton("P\u0430yPal\u200b") == compute_skeleton("paypal") == "paypal"
    assert compute_skeleton("xn--pypal-4ve.com", host=True) == "paypal.com"
    assert compute_skeleton("rnicrosoft.com", host=True) == compute_skeleton(
        "microsoft.com", host=True
    )
    assert compute_skeleton("rn") != compute_skeleton("m")
