"""Requests all rights of a new colleague at once: two calls behind gates in one turn.

Reviewers see both together and decide each for itself; a denial of one says nothing of the other.
The input of the HR agents is here too.
"""

from typing import Any

from pydantic import BaseModel

from agents.sdk import agent
from agents.sdk.scripts import Reply, Result, Turn, call, say, script, together
from agents.tools.directory import (
    EmailAddress,
    FullName,
    SecurityLevel,
    Username,
    create_account,
    grant_application_access,
    set_privileges,
)

NO_ACCOUNT = "No account was made"
APPLICATION = "intranet"


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


def describe_no_account(turn: Turn, account: Result | None) -> str:
    return f"{NO_ACCOUNT} for {turn.input['username']}: {quote_reason(account)}"


def read_security_level(turn: Turn) -> Any:
    """Return the level that set_privileges was called with, which may be a person's change of it."""
    result = turn.result("set_privileges")
    args = turn.input if result is None or result.edited is None else result.edited
    return args["security_level"]


def quote_reason(result: Result | None) -> str:
    """Return the given reason as the end of a sentence."""
    reason = "it was never tried" if result is None else result.why
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."


@script
def bundle(turn: Turn) -> Reply:
    """Play hr_access_bundle: create the account, request both rights in one turn, then report each result."""
    account = turn.result("create_account")
    if account is None:
        return ask_for_account(turn)
    if not account.ok:
        return say(describe_no_account(turn, account))
    if turn.result("set_privileges") is None:
        account_id = account.content["id"]
        username = turn.input["username"]
        return together(
            call(
                "set_privileges",
                account_id=account_id,
                username=username,
                security_level=turn.input["security_level"],
            ),
            call(
                "grant_application_access",
                account_id=account_id,
                username=username,
                application=APPLICATION,
            ),
        )
    rights = {
        "set_privileges": f"Security level {read_security_level(turn)}",
        "grant_application_access": f"Access to {APPLICATION}",
    }
    sentences = [f"The account {turn.input['username']} was made."]
    for tool, right in rights.items():
        result = turn.result(tool)
        if result is not None and result.ok:
            sentences.append(f"{right} was granted.")
        else:
            denied = result is not None and result.denied
            verb = "was denied" if denied else "could not be granted"
            sentences.append(f"{right} {verb}: {quote_reason(result)}")
    return say(" ".join(sentences))


hr_access_bundle = agent(
    name="hr_access_bundle",
    title="HR access bundle",
    description="Makes an account and asks for its privileges and its application at once.",
    instructions=f"""
        You give new colleagues what they need to work. Create the account first. Then, with the id you
        got, set its privileges and grant access to the application {APPLICATION}: both calls in the same
        reply, because people decide them together. If the account cannot be created, stop and say why.
        If a person denies one of them, do not ask for it again; the other stands for itself.
        End by saying of each whether it was granted, and quote the reason of a denial.
    """,
    input=Newcomer,
    model=bundle,
    tools=[create_account, set_privileges, grant_application_access],
    steps=(
        "Create the account",
        "Set its privileges and grant the application",
        "Say what was granted and what was not",
    ),
)
