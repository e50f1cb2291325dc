"""The work of both sides in the `engine` measure: scripts instead of a model, and tools that do nothing.

A script sees the input of the run, the number of results, and each result. It reads only the parts it needs, so its
own work does not grow with the run. A flow is an onboarding of three calls, the second behind a gate. A walk takes a
given number of steps, then one behind a gate; a step is a reply with 1 KB of arguments and its result.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import Any

WELCOME = (
    "Welcome! Your account is ready. Your first day begins at nine at the front desk, where your manager meets you and"
    " shows you around. Please bring a document that says who you are."
)
GATED = ("set_privileges", "gate")
PAYLOAD = 1024  # bytes of a step of a walk
WORDS = (
    "account agent approval budget call colleague contract customer delivery department document error invoice"
    " language letter manager meeting message month number office order payment person phone policy price project"
    " question reason record report request result review role salary schedule security status"
)
_PROSE = random.Random(1).choices(WORDS.split(), k=4096)


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    args: dict[str, Any]


Reply = Call | str
_numbers = count(1)
Script = Callable[[Any, int, Callable[[int], Any]], Reply]


def onboard(given: Any, results: int, result: Callable[[int], Any]) -> Reply:
    """An account, its privileges, a welcome mail, a sentence."""
    if results < 2:
        return account(given, results, result)
    if results == 2:
        mail = {"email": given["email"], "username": given["username"], "text": WELCOME}
        return Call("send_welcome_mail", mail)
    return f"The account {given['username']} was made; the welcome mail went to {given['email']}."


def account(given: Any, results: int, result: Callable[[int], Any]) -> Reply:
    """An account, its privileges, a sentence."""
    if results == 0:
        fields = ("full_name", "email", "username", "department", "manager", "starts_on")
        return Call("create_account", {name: given[name] for name in fields})
    if results == 1:
        args = {"account_id": result(0)["id"], "security_level": given["security_level"]}
        return Call("set_privileges", args)
    return f"The account {given['username']} was made."


def delegate(given: Any, results: int, result: Callable[[int], Any]) -> Reply:
    """Have `account` do it, and say that it is done."""
    return Call("account", given) if results == 0 else f"{result(0)} All is done."


def walk(given: Any, results: int, result: Callable[[int], Any]) -> Reply:
    """So many steps, then the gate, whose argument says how long the steps took."""
    steps = given["steps"]
    if results < steps:
        return Call("note", {"number": results, "text": text(results)})
    if results == steps:
        return Call("gate", {"paces": paces([result(n)["at"] for n in range(steps)])})
    return str(result(steps)["paces"])


def steps(given: Any, results: int, _: Callable[[int], Any]) -> Reply:
    """So many calls, each of so many bytes."""
    if results == given["turns"]:
        return "Done."
    text = str(results).ljust(given["given"], "x")  # a call that repeats would be held
    return Call("step", {"text": text, "got": given["got"]})


SCRIPTS: dict[str, Script] = {
    script.__name__: script for script in (onboard, account, delegate, walk)
}


def newcomers(flows: int) -> Iterator[dict[str, Any]]:
    """What so many flows are given, each another person."""
    for number in islice(_numbers, flows):
        yield {
            "full_name": "New Hire",
            "email": f"n{number}@example.org",
            "username": f"n{number}",
            "department": "Customer service",
            "manager": "m.manager@example.org",
            "starts_on": "2026-12-01",
            "security_level": 2,
        }


def text(number: int) -> str:
    """1 KB of words, which compress as prose does. It is cut out of a longer one: to make it costs next to nothing."""
    begin = number * 1597 % (len(_PROSE) - PAYLOAD // 6)  # far from the one before
    words = _PROSE[begin : begin + PAYLOAD // 6]
    return " ".join(words)[:PAYLOAD].ljust(PAYLOAD, ".")


def paces(times: Sequence[float]) -> str:
    """Milliseconds of a step, the median of the first fifth and of the last, without the very first three."""
    took = [1000 * (after - before) for before, after in pairwise(times)]
    fifth = max(3, len(took) // 5)
    first, last = took[3 : 3 + fifth] or took, took[-fifth:]
    return json.dumps({"first": statistics.median(first), "last": statistics.median(last)})


# Tools, all of which do nothing


def create_account(
    full_name: str, email: str, username: str, department: str, manager: str, starts_on: str
) -> dict[str, str]:
    """Create an account."""
    return {
        "id": f"2819c223-7f76-453a-919d-{username}",
        "username": username,
        "email": email,
        "created_at": "2026-11-25T09:00:00Z",
        "location": f"https://directory.example.org/v2/Users/{username}",
    }


def set_privileges(account_id: str, security_level: int) -> dict[str, int]:
    """Give an account the privileges of a security level."""
    return {"security_level": security_level}


def send_welcome_mail(email: str, username: str, text: str) -> dict[str, str]:
    """Send the welcome mail."""
    return {"message": f"welcome-{username}"}


def note(number: int, text: str) -> dict[str, float]:
    """Take a step, and say when."""
    return {"at": time.time()}


def gate(paces: str) -> dict[str, str]:
    """Give back what it was given, once a person lets it."""
    return {"paces": paces}


TOOLS: dict[str, Callable[..., Any]] = {
    tool.__name__: tool for tool in (create_account, set_privileges, send_welcome_mail, note, gate)
}
