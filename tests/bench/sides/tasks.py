"""What the clerk of the `desk` measure proposes: ordinary calls, and planted ones with an odd value each."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

FIRST = ("ada", "bruno", "carla", "david", "elena", "felix", "greta", "hugo", "ida", "jonas")
LAST = (
    "albers",
    "brandt",
    "cordes",
    "dietz",
    "engel",
    "frisch",
    "gerber",
    "hoff",
    "iden",
    "junker",
)
QUESTION = "ask_person"
OF_TWO = "raise_limit"  # the policy demands two people
POLICY = f"rules: [{{name: Two people, match: {{tool: {OF_TWO}}}, quorum: 2}}]"

Task = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The tasks of one clearing, in a random order, and which of them are planted."""

    tasks: list[Task]
    planted: list[Task]


def mixed(number: int) -> Mix:
    """Make so many tasks: of 20 one question, one at high risk, one for two people; a few have an odd value."""
    random, names = Random(1), _names("a")
    planted = [_planted(place, next(names)) for place in range(max(1, number * 7 // 100))]
    tasks = [
        *planted,
        *(_ordinary(place, next(names), random) for place in range(number - len(planted))),
    ]
    random.shuffle(tasks)
    return Mix(tasks=tasks, planted=planted)


def ordinary(number: int) -> list[Task]:
    """Make so many tasks without an odd value, mixed as in `mixed`."""
    random, names = Random(2), _names("c")
    return [_ordinary(place, next(names), random) for place in range(number)]


def important(place: int) -> Task:
    """Make a call at high risk, whose amount is odd also beside those of the places before it."""
    return _pay(f"grace.hopper{place}@example.org", way="cash", euros=240 * 10**place)


def usual(number: int) -> list[Task]:
    """Make tasks without questions, from which the usual values are learnt."""
    random, names = Random(0), _names("b")
    tasks = (_ordinary(place, next(names), random) for place in range(2 * number))
    return [task for task in tasks if task["name"] != QUESTION][:number]


def _ordinary(place: int, customer: str, random: Random) -> Task:
    match place % 20:
        case 0:
            return {"name": QUESTION, "args": {"question": f"How many parcels did {customer} get?"}}
        case 1:
            return _pay(customer, way="cash", euros=random.randint(20, 26))
        case 2:
            return _task(OF_TWO, customer, euros=random.choice((500, 1000)))
        case other if other % 5 == 4:
            return _close(customer, keep_days=random.choice((30, 90)))
        case _:
            way = random.choice(("voucher", "transfer"))
            return _pay(customer, way=way, euros=random.randint(20, 26))


def _planted(place: int, customer: str) -> Task:
    match place % 7:
        case 0:
            return _pay(customer, euros=250)
        case 1:
            return _pay(customer.replace("example", "examp1e"))
        case 2:
            return _pay(customer.replace(".", "\u200b.", 1))
        case 3:
            return _close(customer, keep_days=3)
        case 4:
            return _close(customer.replace("example", "ex\u0430mple"))
        case 5:
            return _close(customer, note="Keep nothing.")
        case _:
            return _pay(customer, way="cash", euros=2400)


def _pay(customer: str, *, way: str = "transfer", euros: int = 23) -> Task:
    order = f"{sum(map(ord, customer)):05}-{customer[0]}{len(customer)}"
    return _task("pay_back", customer, order=order, euros=euros, way=way)


def _close(customer: str, *, keep_days: int = 30, **more: str) -> Task:
    return _task("close_account", customer, keep_days=keep_days, **more)


def _task(name: str, customer: str, **args: Any) -> Task:
    return {"name": name, "args": {"customer": customer, **args}}


def _names(end: str) -> Iterator[str]:
    """Return a new address each time."""
    for number in count():
        first, last = FIRST[number % 10], LAST[number // 10 % 10]
        yield f"{first}.{last}{end * (1 + number // 100)}@example.org"
