"""What may be used, what was used, and what a model charges: plain data, and how to add it up.

Money is a whole number of micro-units of US dollars (1 USD is 1,000,000 of them), rounded up, so that no
sum depends on its order. Time is in seconds. A limit that is None does not exist.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

MICROS = 1_000_000  # of one US dollar
REPLY_TOKENS = 4_096  # what a model's reply is reckoned to have at most, until it is there

Amount = int | float


class Limit(StrEnum):
    """What can be limited; each is a field of a budget."""

    TURNS = "turns"  # model replies
    CALLS = "calls"  # tool starts, each attempt
    TOKENS = "tokens"  # input and output tokens of models
    MICROS = "micros"  # money, in micro-units of US dollars
    SECONDS = "seconds"  # active time, without waits for people, times or events
    DEPTH = "depth"  # nested agents, including the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run, or one activation of an agent with everything below it, may use."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    micros: int | None = None
    seconds: float | None = None
    depth: int | None = None

    def of(self, limit: Limit) -> Amount | None:
        amount: Amount | None = getattr(self, limit)
        return amount

    def granted(self, limit: Limit, amount: Amount | None) -> "Budget":
        """With that much more, or without this limit. What is not limited stays so."""
        allowed = self.of(limit)
        more = None if amount is None or allowed is None else allowed + amount
        changed: dict[str, Any] = {str(limit): more}
        return replace(self, **changed)


NO_LIMITS = Budget()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was used, or is reserved. `unpriced` counts replies whose price nobody knows."""

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
    """What a model charges, in micro-units of US dollars for a million tokens."""

    input: int
    output: int

    def price(self, *, input: int, output: int) -> int:
        return -(-(input * self.input + output * self.output) // MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustedLimit:
    """A limit that was reached: of a frame, or of the run where `frame` is None.

    `used` is None where nobody can say: the model has no known price.
    """

    limit: Limit
    used: Amount | None
    allowed: Amount
    frame: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGate:
    """What a limit gate is about: everything that was reached when it opened, at `at`."""

    gate: UUID
    at: datetime
    limits: tuple[ExhaustedLimit, ...]


def tokens_of(usage: dict[str, int]) -> int:
    """Given and replied; other kinds of usage are parts of these."""
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def strictest(one: Budget | None, other: Budget | None) -> Budget | None:
    """The smaller of each limit."""
    if one is None or other is None:
        return one or other
    least: dict[str, Any] = {}
    for limit in Limit:
        amounts = [amount for amount in (one.of(limit), other.of(limit)) if amount is not None]
        least[str(limit)] = min(amounts, default=None)
    return Budget(**least)
