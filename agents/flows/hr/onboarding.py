"""Onboarding of a new colleague: an account, its privileges behind a gate, a welcome mail.

Two shapes of the same work: `hr_onboarding` hands the account over to `account_agent`, which waits at the
gate while both levels are suspended; `hr_onboarding_single` does everything itself.

When a person denies the privileges they are not asked for again: the account stays as it is, the welcome
mail is still sent, because the account is there to be used, and the last sentence says what was denied and why.
Without an account there are no privileges and no mail.
"""

from agents.flows.hr.access import (
    NO_ACCOUNT,
    Newcomer,
    ask_for_account,
    describe_no_account,
    quote_reason,
    read_security_level,
)
from agents.sdk import agent, prompt
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.tools.directory import create_account, set_privileges
from agents.tools.mail import send_welcome_mail


@script
def make_account(turn: Turn) -> Reply:
    """Play account_agent: create the account, set its privileges, then report in a sentence."""
    return _plan_account_step(turn) or say(_describe_account(turn))


@script
def onboard_by_delegation(turn: Turn) -> Reply:
    """Play hr_onboarding: delegate the account to another agent, then send the mail."""
    account = turn.result("account_agent")
    if account is None:
        return call("account_agent", **turn.input)
    sentence = str(account.content)
    if not account.ok:
        return say(f"{NO_ACCOUNT}: {quote_reason(account)}")
    if sentence.startswith(NO_ACCOUNT):
        return say(sentence)
    return _plan_mail_step(turn) or say(f"{sentence} {_describe_mail(turn)}")


@script
def onboard_alone(turn: Turn) -> Reply:
    """Play hr_onboarding_single: take the same steps without another agent."""
    if (step := _plan_account_step(turn)) is not None:
        return step
    account = turn.result("create_account")
    if account is None or not account.ok:
        return say(_describe_account(turn))
    return _plan_mail_step(turn) or say(f"{_describe_account(turn)} {_describe_mail(turn)}")


account_agent = agent(
    name="account_agent",
    title="Accounts",
    description="Creates a person's account and gives it the privileges of a security level.",
    instructions="""
        You look after accounts. Create the account first, then set its privileges with the id you got.
        If the account cannot be created, stop and say why.
        If a person denies the privileges, do not ask for them again: the account stays without them.
        End with one sentence that says what the account is now, and quotes the reason of a denial.
    """,
    input=Newcomer,
    model=make_account,
    tools=[create_account, set_privileges],
    steps=("Create the account", "Set its privileges", "Say what the account is now"),
)

hr_onboarding = agent(
    name="hr_onboarding",
    title="HR onboarding",
    description="Onboards a new colleague: account, privileges, welcome mail.",
    instructions=prompt(
        "hr/onboarding",
        """
        You welcome new colleagues. Hand the account over to account_agent with the data you were given.
        If there is an account afterwards, with or without privileges, send the welcome mail.
        If there is none, send no mail.
        End with one or two sentences that say what was done and what was not, and why.
        """,
    ),
    input=Newcomer,
    model=onboard_by_delegation,
    tools=[send_welcome_mail],
    subagents=[account_agent],
    steps=("Have the account made", "Send the welcome mail", "Say what was done"),
)

hr_onboarding_single = agent(
    name="hr_onboarding_single",
    title="HR onboarding by one agent",
    description="Onboards a new colleague without handing anything over.",
    instructions="""
        You welcome new colleagues. Create the account, set its privileges with the id you got, then send
        the welcome mail. If the account cannot be created, stop. If a person denies the privileges, do
        not ask for them again, but send the mail. End with one or two sentences that say what was done
        and what was not, and why.
    """,
    input=Newcomer,
    model=onboard_alone,
    tools=[create_account, set_privileges, send_welcome_mail],
    steps=(
        "Create the account",
        "Set its privileges",
        "Send the welcome mail",
        "Say what was done",
    ),
)


def _plan_account_step(turn: Turn) -> Reply | None:
    """Return the next call towards the account, or None if no call is left."""
    person, account = turn.input, turn.result("create_account")
    if account is None:
        return ask_for_account(turn)
    if account.ok and turn.result("set_privileges") is None:
        return call(
            "set_privileges",
            account_id=account.content["id"],
            username=person["username"],
            security_level=person["security_level"],
        )
    return None


def _plan_mail_step(turn: Turn) -> Reply | None:
    if turn.result("send_welcome_mail") is not None:
        return None
    person = turn.input
    return call(
        "send_welcome_mail",
        full_name=person["full_name"],
        email=person["email"],
        username=person["username"],
    )


def _describe_account(turn: Turn) -> str:
    username = turn.input["username"]
    account, privileges = turn.result("create_account"), turn.result("set_privileges")
    if account is None or not account.ok:
        return describe_no_account(turn, account)
    if privileges is not None and privileges.ok:
        return f"The account {username} was made with security level {read_security_level(turn)}."
    verb = "were denied" if privileges is not None and privileges.denied else "could not be set"
    return f"The account {username} was made, but its privileges {verb}: {quote_reason(privileges)}"


def _describe_mail(turn: Turn) -> str:
    mail = turn.result("send_welcome_mail")
    if mail is not None and mail.ok:
        return f"The welcome mail went to {turn.input['email']}."
    return f"The welcome mail was not sent: {quote_reason(mail)}"
