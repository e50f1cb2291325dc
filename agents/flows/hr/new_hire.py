"""The input of the HR agents, and the texts that they share."""

from typing import Any

from pydantic import BaseModel

from agents.sdk.scripts import (
    Reply,
    Result,
    Turn,
    call,
)
from agents.tools.person_fields import (
    EmailAddress,
    FullName,
    SecurityLevel,
    Username,
)

NO_ACCOUNT = "No account was made"


class Newcomer(BaseModel):
    """The person who joins."""

    full_name: FullName
    email: EmailAddress
    username: Username
    security_level: SecurityLevel


def ask_for_account(turn: Turn) -> Reply:
    person = turn.input
    return call(
        "create_account",
        full_name=person["full_name"],
        email=person["email"],
        username=person["username"],
    )


def no_account(turn: Turn, account: Result | None) -> str:
    return f"{NO_ACCOUNT} for {turn.input['username']}: {quote_reason(account)}"


def security_level(turn: Turn) -> Any:
    """Return the level that set_privileges was called with, which may be a person's change of it."""
    result = turn.result("set_privileges")
    args = turn.input if result is None or result.edited is None else result.edited
    return args["security_level"]


def quote_reason(result: Result | None) -> str:
    """Return the given reason as the end of a sentence."""
    reason = "it was never tried" if result is None else result.why
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
