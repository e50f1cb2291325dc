"""Contrast of every pair of colours that pages put on each other, in both schemes (WCAG 2.2: 1.4.3 and 1.4.11)."""

import re
from itertools import product

import pytest

from config.env.environment import ROOT

TOKENS = (ROOT / "static" / "css" / "tokens.css").read_text(encoding="utf-8")
COLOURS = re.findall(r"--([\w-]+):\s*light-dark\((#\w{6}),\s*(#\w{6})\)", TOKENS)
SCHEMES = {
    "light": {name: light for name, light, _ in COLOURS},
    "dark": {name: dark for name, _, dark in COLOURS},
}

GROUNDS = ("bg", "surface", "sunken", "hover", "selected")
MEANINGS = ("ok", "danger", "warn", "info", "agent")
BARS = tuple(name for name, _, _ in COLOURS if name.startswith("k-"))
TEXT, SHAPE = 4.5, 3.0

PAIRS = [
    *((ink, ground, TEXT) for ink in ("text", "text-2", "text-3", "accent") for ground in GROUNDS),
    *((meaning, ground, TEXT) for meaning in MEANINGS for ground in (*GROUNDS, f"{meaning}-bg")),
    *(("text", f"{meaning}-bg", TEXT) for meaning in (*MEANINGS, "accent")),
    *(("text-2", f"{meaning}-bg", TEXT) for meaning in MEANINGS),
    ("accent", "accent-bg", TEXT),
    ("text", "ins", TEXT),
    ("text", "del", TEXT),
    *(("on-fill", fill, TEXT) for fill in ("accent", "accent-hover", *MEANINGS)),
    *(("border-strong", ground, SHAPE) for ground in GROUNDS),
    *((bar, ground, SHAPE) for bar, ground in product(BARS, ("surface", "hover", "selected"))),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_pair_is_too_faint(scheme: str) -> None:
    colours = SCHEMES[scheme]
    assert len(BARS) == 6
    faint = {
        f"{ink} on {ground}": round(ratio, 2)
        for ink, ground, least in PAIRS
        if (ratio := contrast(colours[ink], colours[ground])) < least
    }
    assert faint == {}


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == pytest.approx(1)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def contrast(one: str, other: str) -> float:
    """The contrast ratio, from 1 to 21, of two colours written #rrggbb."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
