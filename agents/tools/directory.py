"""Accounts in any directory that speaks SCIM 2.0 (RFC 7644), at SCIM_URL with SCIM_TOKEN.

What speaks it is imported at the first call, because a worker takes as long to import it as everything else together.
"""

from typing import Any

from agents.sdk import Preview, PreviewChange, ToolContext, tool
from agents.tools.person_fields import Application, EmailAddress, FullName, SecurityLevel, Username


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

    now, then = scim.roles_of(context, account_id, username), [role_of(security_level)]
    added = len({*then} - {*now})
    return Preview(
        summary="Replaces all roles of the account" if now != then else "Changes nothing",
        changes=[PreviewChange(what="roles", before=", ".join(now) or None, after=then[0])]
        if now != then
        else [],
        counts={"roles added": added, "roles removed": len({*now} - {*then})},
        targets=[username],
    )


def role_of(security_level: int) -> str:
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

    roles = [{"value": role_of(security_level)}]
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
