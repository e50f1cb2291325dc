"""Accounts in any directory that speaks SCIM 2.0 (RFC 7644), at SCIM_URL with SCIM_TOKEN.

What speaks it is imported at the first call, because a worker takes as long to import it as everything else together.
"""

from typing import Any

from agents.sdk import ToolContext, tool
from agents.tools.person_fields import (
    Application,
    EmailAddress,
    FullName,
    SecurityLevel,
    Username,
)


@tool(effect="idempotent", risk="medium", sentence="Create the account {username} for {full_name}")
def create_account(
    context: ToolContext, full_name: FullName, email: EmailAddress, username: Username
) -> dict[str, str]:
    """Create an account in the directory. Returns its id and username."""
    from agents.tools import scim

    return scim.create(context, full_name, email, username)


@tool(
    effect="idempotent",
    approval=True,
    risk="high",
    sentence="Give {username} security level {security_level}",
)
def set_privileges(
    context: ToolContext, account_id: str, username: Username, security_level: SecurityLevel
) -> dict[str, Any]:
    """Set the privileges of an account to those of a security level, whatever they were before.

    The account id and the username must belong together. Returns the roles the account has now.
    """
    from agents.tools import scim

    roles = [{"value": f"security-level-{security_level}"}]
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
