"""Budgets, their usage and model prices as plain data, with their arithmetic, and their form in requests and texts.

Money is a whole number of micro-units of US dollars (1 USD is 1,000,000 of them). It is rounded up, so no sum depends
on its order. Time is in seconds. A limit of None does not exist.

Outside, money is `usd`: US dollars as decimal text or a number, to the micro-unit. Every other limit has the name and
unit of its field in `BudgetLimits`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any
from uuid import UUID

MICROS = 1_000_000  # of one US dollar
REPLY_TOKENS = 4_096  # assumed size of a model's reply until it arrives

Amount = int | float


class Limit(StrEnum):
    """The limits that a budget can set; each is a field of `BudgetLimits`."""

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

    def add_grant(self, limit: Limit, amount: Amount | None) -> "BudgetLimits":
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

    def compute_price(self, *, input: int, output: int) -> int:
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


def count_tokens(usage: dict[str, int]) -> int:
    """Add input and output tokens. Other kinds of usage are parts of these two."""
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def add_usage(usage: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Add up usage by kind."""
    return {kind: usage.get(kind, 0) + other.get(kind, 0) for kind in {**usage, **other}}


def select_strictest(first: BudgetLimits | None, other: BudgetLimits | None) -> BudgetLimits | None:
    """Return the smaller value of each limit."""
    if first is None or other is None:
        return first or other
    least: dict[str, Any] = {}
    for limit in Limit:
        amounts = [amount for amount in (first.of(limit), other.of(limit)) if amount is not None]
        least[str(limit)] = min(amounts, default=None)
    return BudgetLimits(**least)


# Budgets in forms, requests and texts


USD = "usd"
NAMES: dict[str, Limit] = {
    "turns": Limit.TURNS,
    "calls": Limit.CALLS,
    "tokens": Limit.TOKENS,
    USD: Limit.MICROS,
    "seconds": Limit.SECONDS,
    "depth": Limit.DEPTH,
}
MIN: dict[Limit, Amount] = {**dict.fromkeys(Limit, 1), Limit.SECONDS: 0.001}
MAX: dict[Limit, Amount] = {
    Limit.TURNS: 1_000_000,
    Limit.CALLS: 1_000_000,
    Limit.TOKENS: 1_000_000_000_000,
    Limit.MICROS: 1_000_000 * MICROS,
    Limit.SECONDS: 366 * 24 * 60 * 60,
    Limit.DEPTH: 16,
}
_UNITS = {
    Limit.TURNS: "turns",
    Limit.CALLS: "tool calls",
    Limit.TOKENS: "tokens",
    Limit.MICROS: "US dollars",
    Limit.SECONDS: "active seconds",
    Limit.DEPTH: "nesting levels",
}


class InvalidBudget(ValueError):
    """The request contains no valid budget; `name` names the wrong limit, and is empty for the whole."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name} {detail}".strip())
        self.name = name
        self.detail = detail


def name_limit(limit: Limit) -> str:
    """Return the public name of a limit: `usd` for money."""
    return USD if limit is Limit.MICROS else str(limit)


def name_unit(limit: Limit) -> str:
    """Return the unit of a limit, as people read it."""
    return _UNITS[limit]


def read_budget(values: object) -> BudgetLimits | None:
    """Read a budget from `{"turns", "calls", "tokens", "usd", "seconds", "depth"}`; None if it sets no limit.

    A missing or null field sets no limit. Raises InvalidBudget.
    """
    if values is None:
        return None
    budget = BudgetLimits()
    for name, value in _require_names(values).items():
        if value is not None:
            changed: dict[str, Any] = {str(NAMES[name]): read_amount(name, value)}
            budget = replace(budget, **changed)
    return None if budget == BudgetLimits() else budget


def limit_budget(
    requested: BudgetLimits | None, bounds: BudgetLimits | None
) -> BudgetLimits | None:
    """Return the requested budget, with the limits of `bounds` where it sets none.

    Raises InvalidBudget if it exceeds `bounds`.
    """
    if requested is None or bounds is None:
        return requested or bounds
    for name, limit in NAMES.items():
        amount, bound = requested.of(limit), bounds.of(limit)
        if amount is not None and bound is not None and amount > bound:
            raise InvalidBudget(name, f"must be at most {to_text(limit, bound)} here")
    return select_strictest(requested, bounds)


def read_granted(result: object, reached: Collection[Limit]) -> dict[Limit, Amount | None]:
    """Read a grant for exhausted limits: `{"turns": 10}`, or null to remove a limit. Raises InvalidBudget."""
    amounts: dict[Limit, Amount | None] = {}
    for name, value in _require_names(result).items():
        if NAMES[name] not in reached:
            raise InvalidBudget(name, "was not reached")
        amounts[NAMES[name]] = None if value is None else read_amount(name, value)
    if not amounts:
        raise InvalidBudget(
            "", f"must grant some {' or '.join(name_unit(limit) for limit in sorted(reached))}"
        )
    return amounts


def read_amount(name: str, value: object) -> Amount:
    """Read an amount: a whole number. Seconds may have a fraction, and `usd` may be text. Raises InvalidBudget."""
    limit = NAMES[name]
    amount: Amount
    if limit is Limit.MICROS:
        amount = _read_micros(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidBudget(name, "must be a number")
    elif limit is not Limit.SECONDS and not isinstance(value, int):
        raise InvalidBudget(name, "must be a whole number")
    else:
        amount = value
    if not MIN[limit] <= amount <= MAX[limit]:
        low, high = to_text(limit, MIN[limit]), to_text(limit, MAX[limit])
        raise InvalidBudget(name, f"must be between {low} and {high}")
    return amount


def read_form_budget(values: Mapping[str, str]) -> dict[str, object]:
    """Convert form fields, by limit, to the values a program would send. Empty fields are left out."""
    converted: dict[str, object] = {}
    for name, entry in values.items():
        text = entry.strip()
        if re.fullmatch(r"\d{1,15}", text, re.ASCII):
            converted[name] = int(text)
        elif name == "seconds" and re.fullmatch(r"\d{1,15}\.\d{1,3}", text, re.ASCII):
            converted[name] = float(text)
        elif text:
            converted[name] = text
    return converted


def to_json(budget: BudgetLimits | None) -> dict[str, Amount | str]:
    """Write a budget in the form that `read_budget` reads."""
    amounts = {name: (budget or BudgetLimits()).of(limit) for name, limit in NAMES.items()}
    return {
        name: to_text(NAMES[name], amount) if name == USD else amount
        for name, amount in amounts.items()
        if amount is not None
    }


def to_text(limit: Limit, amount: Amount) -> str:
    """Format an amount without its unit; money has two to six decimals."""
    if limit is Limit.MICROS:
        dollars, micros = divmod(int(amount), MICROS)
        decimals = f"{micros:06}".rstrip("0").ljust(2, "0")
        return f"{dollars}.{decimals}"
    if limit is Limit.SECONDS:
        return f"{amount:.3f}".rstrip("0").rstrip(".")
    return str(int(amount))


def describe_exhaustion(exhausted: ExhaustedLimit) -> str:
    """Format an exhausted limit: `10 of 10 turns`, or that the usage is not known."""
    allowed = f"{to_text(exhausted.limit, exhausted.allowed)} {name_unit(exhausted.limit)}"
    if exhausted.used is None:
        return f"{allowed}, which cannot be held: the model has no known price"
    return f"{to_text(exhausted.limit, exhausted.used)} of {allowed}"


def _require_names(values: object) -> Mapping[str, object]:
    if not isinstance(values, dict):
        raise InvalidBudget("", f"must be an object with some of {', '.join(NAMES)}")
    for name in values:
        if name not in NAMES:
            raise InvalidBudget(str(name)[:64], "is not expected")
    return values


def _read_micros(value: object) -> int:
    text = isinstance(value, str) and not re.fullmatch(r"\d{1,12}(\.\d+)?", value.strip(), re.ASCII)
    if text or isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise InvalidBudget(USD, "must be an amount such as 1.50")
    try:
        micros = Decimal(str(value).strip()) * MICROS
    except InvalidOperation:
        raise InvalidBudget(USD, "must be an amount such as 1.50") from None
    if not micros.is_finite() or abs(micros) > 10 * MAX[Limit.MICROS]:
        raise InvalidBudget(USD, "must be an amount such as 1.50")
    if micros != micros.to_integral_value():
        raise InvalidBudget(USD, "must have at most six decimals")
    return int(micros)
