"""Budgets, their usage and model prices as plain data, with their arithmetic.

Money is a whole number of micro-units of US dollars (1 USD is 1,000,000 of them). It is rounded up, so no sum depends
on its order. Time is in seconds. A limit of None does not exist.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

MICROS = 1_000_000  # of one US dollar
REPLY_TOKENS = 4_096  # assumed size of a model's reply until it arrives

Amount = int | float


class Limit(StrEnum):
    """The limits that a budget can set; each is a field of `Budget`."""

    TURNS = "turns"  # model replies
    CALLS = "calls"  # tool starts, each attempt
    TOKENS = "tokens"  # input and output tokens of models
    MICROS = "micros"  # money, in micro-units of US dollars
    SECONDS = "seconds"  # active time, without waits for people, times or events
    DEPTH = "depth"  # nested agents, including the first


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLimits:
    """The limits of a run, or of one activation of an agent with everything below it."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    micros: int | None = None
    seconds: float | None = None
    depth: int | None = None

    def of(self, limit: Limit) -> Amount | None:
        """Return the limit of this name, None if it is not set."""
        amount: Amount | None = getattr(self, limit)
        return amount

    def granted(self, limit: Limit, amount: Amount | None) -> "BudgetLimits":
        """Return the budget with `amount` more of this limit, or without it if `amount` is None.

        A limit that is not set stays unset.
        """
        allowed = self.of(limit)
        raised = None if amount is None or allowed is None else allowed + amount
        changed: dict[str, Any] = {str(limit): raised}
        return replace(self, **changed)


NO_LIMITS = BudgetLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Used or reserved amounts. `unpriced` counts replies without a known price."""

    turns: int = 0
    calls: int = 0
    tokens: int = 0
    micros: int = 0
    unpriced: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            turns=self.turns + other.turns,
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            micros=self.micros + other.micros,
            unpriced=self.unpriced + other.unpriced,
        )


NOTHING = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The prices of a model, in micro-units of US dollars for a million tokens."""

    input: int
    output: int

    def price(self, *, input: int, output: int) -> int:
        """Return the price of a model call with these token counts, rounded up to a whole micro-unit."""
        return -(-(input * self.input + output * self.output) // MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedLimit:
    """An exhausted limit of a frame, or of the run where `frame` is None.

    `used` is None if the price of the model is not known.
    """

    limit: Limit
    used: Amount | None
    allowed: Amount
    frame: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGate:
    """The subject of a limit gate: every limit that was exhausted when it opened, at `at`."""

    gate: UUID
    at: datetime
    limits: tuple[ExhaustedLimit, ...]


def tokens_of(usage: dict[str, int]) -> int:
    """Add input and output tokens. Other kinds of usage are parts of these two."""
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def added(usage: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Add up usage by kind."""
    return {kind: usage.get(kind, 0) + other.get(kind, 0) for kind in {**usage, **other}}


def strictest(first: BudgetLimits | None, other: BudgetLimits | None) -> BudgetLimits | None:
    """Return the smaller value of each limit."""
    if first is None or other is None:
        return first or other
    least: dict[str, Any] = {}
    for limit in Limit:
        amounts = [amount for amount in (first.of(limit), other.of(limit)) if amount is not None]
        least[str(limit)] = min(amounts, default=None)
    return BudgetLimits(**least)
