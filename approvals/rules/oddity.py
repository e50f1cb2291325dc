"""Defines the oddity of a value, in words for a list and for a page."""

from dataclasses import dataclass
from enum import StrEnum

from approvals.rules.argument_paths import ArgumentPath, Value

MAX_SHOWN = 80  # characters of a value in a sentence


class OddityKind(StrEnum):
    """The kinds of oddities, the most alarming first."""

    LOOK_ALIKE = "look_alike"  # it resembles a value that was approved before, but is another
    INVISIBLE = "invisible"  # it holds characters that cannot be seen
    LETTERS = (
        "letters"  # it holds letters of other alphabets that look like Latin ones, or punycode
    )
    SCALE = "scale"  # a number that is a factor of ten or more from the usual ones
    RANGE = "range"  # a number outside the usual range
    UNSEEN = "unseen"  # a value that was never approved, where values repeat
    UNSET = "unset"  # not given, where it usually is
    RARE = "rare"  # below five percent of the approved values


ORDER = tuple(OddityKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """An odd value of an argument. `short` stands in a list, `text` beside the value."""

    argument: str
    kind: OddityKind
    short: str
    text: str

    @property
    def weight(self) -> int:
        """The place in the order of oddness; 0 comes first."""
        return ORDER.index(self.kind)

    @property
    def is_shown_elsewhere(self) -> bool:
        """Whether pages describe it beside each value anyway, without a history."""
        return self.kind is OddityKind.LETTERS


def oddity(place: ArgumentPath, kind: OddityKind, short: str, text: str) -> Oddity:
    """Make an oddity of a place; inside an argument, its text begins with the place."""
    within = place.label if len(place.path) > 1 or place.domain else ""
    return Oddity(
        argument=place.argument,
        kind=kind,
        short=f"{place.label}: {short}",
        text=f"{within}: {text}" if within else text,
    )


def quoted(value: Value) -> str:
    """Return a number as it is, and quote any other value, cut to MAX_SHOWN characters."""
    text = value.text
    if value.number is not None:
        return text
    return f"\u201c{text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + '…'}\u201d"
