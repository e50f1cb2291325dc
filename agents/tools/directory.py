"""Accounts in any directory that speaks SCIM 2.0 (RFC 7644), at SCIM_URL with SCIM_TOKEN.

What speaks it is imported at the first call, because a worker takes as long to import it as everything else together.
The fields of a person's data are also those of other tools and of agents.
"""

from typing import Annotated, Any

from pydantic import Field

from agents.sdk import Preview, PreviewChange, ToolContext, tool

# No control characters: a line break in a name would end the header of a mail.
FullName = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")
]

# The e-mail addresses that HTML accepts (html.spec.whatwg.org, section 4.10.5.1.5), so that browser, API and tool
# agree. Only a sent mail shows whether the address exists.
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
EmailAddress = Annotated[
    str,
    Field(
        max_length=254,
        pattern=rf"^[a-zA-Z0-9.!#$%&'*+/=?^_`{{|}}~-]+@{_LABEL}(?:\.{_LABEL})*$",
        json_schema_extra={"format": "email"},
    ),
]

Username = Annotated[str, Field(max_length=128, pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_.@+-]*$")]

SecurityLevel = Annotated[int, Field(ge=0, le=99, description="higher = more privileges")]

Application = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]


@tool(effect="idempotent", risk="medium", sentence="Create the account {username} for {full_name}")
def create_account(
    context: ToolContext, full_name: FullName, email: EmailAddress, username: Username
) -> dict[str, str]:
    """Create an account in the directory. Returns its id and username."""
    from agents.tools import scim

    return scim.create(context, full_name, email, username)


def preview_privileges(
    context: ToolContext, account_id: str, username: str, security_level: int
) -> Preview:
    """Compare the roles that the account has with those of the security level."""
    from agents.tools import scim

    now, then = scim.read_roles(context, account_id, username), [name_role(security_level)]
    added = len({*then} - {*now})
    return Preview(
        summary="Replaces all roles of the account" if now != then else "Changes nothing",
        changes=[PreviewChange(what="roles", before=", ".join(now) or None, after=then[0])]
        if now != then
        else [],
        counts={"roles added": added, "roles removed": len({*now} - {*then})},
        targets=[username],
    )


def name_role(security_level: int) -> str:
    """Name the role of a security level."""
    return f"security-level-{security_level}"


@tool(
    effect="idempotent",
    approval=True,
    risk="high",
    sentence="Give {username} security level {security_level}",
    preview=preview_privileges,
)
def set_privileges(
    context: ToolContext, account_id: str, username: Username, security_level: SecurityLevel
) -> dict[str, Any]:
    """Set the privileges of an account to those of a security level, whatever they were before.

    The account id and the username must belong together. Returns the roles the account has now.
    """
    from agents.tools import scim

    roles = [{"value": name_role(security_level)}]
    scim.set_roles(context, account_id, username, roles)
    return {"username": username, "roles": roles}


@tool(
    effect="idempotent",
    approval=True,
    risk="medium",
    sentence="Give {username} access to {application}",
)
def grant_application_access(
    context: ToolContext, account_id: str, username: Username, application: Application
) -> dict[str, Any]:
    """Give an account access to one more application; its privileges stay as they are.

    The account id and the username must belong together. Returns the application.
    """
    from agents.tools import scim

    scim.add_entitlement(context, account_id, username, f"application-{application}")
    return {"username": username, "application": application}
