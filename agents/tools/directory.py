"""Accounts in any directory that speaks SCIM 2.0 (RFC 7644), at SCIM_URL with SCIM_TOKEN.

An account carries the idempotency key of the call that made it as its `externalId`. That is how a
repeated call finds what the first one did, and why an account made by anybody else is never adopted.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_models import (
    ConflictException,
    Email,
    Name,
    PatchOp,
    PatchOperation,
    SCIMException,
    ScimProvider,
    SearchRequest,
    User,
)

from agents.sdk import ToolContext, ToolError, tool
from agents.tools.person import EmailAddress, FullName, SecurityLevel, Username

Account = User[Any]

# The server's fault or a matter of time: trying again may help, telling the model does not.
PASSING = {408, 425, 429}


@tool(effect="idempotent", risk="medium", sentence="Create the account {username} for {full_name}")
def create_account(
    context: ToolContext, full_name: FullName, email: EmailAddress, username: Username
) -> dict[str, str]:
    """Create an account in the directory. Returns its id and username."""
    with _directory(context) as scim:
        account = _made_by(scim, context.key) or _create(
            scim,
            User(
                external_id=context.key,
                user_name=username,
                display_name=full_name,
                name=Name(formatted=full_name),
                emails=[Email(value=email, primary=True)],
                active=True,
            ),
        )
    return {"id": _known(account.id), "username": _known(account.user_name)}


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
    roles = [{"value": f"security-level-{security_level}"}]
    with _directory(context) as scim:
        account = scim.query(User, account_id)
        if not isinstance(account, User) or not _same(account.user_name, username):
            raise ToolError(f"the account {account_id} is not the one of {username}")
        replace: PatchOperation[Any] = PatchOperation(
            op=PatchOperation.Op.replace_, path="roles", value=roles
        )
        scim.modify(User, account_id, PatchOp[Account](operations=[replace]))
    return {"username": username, "roles": roles}


@contextmanager
def _directory(context: ToolContext) -> Iterator[SyncSCIMClient]:
    """A client whose requests end with the attempt; what the directory refuses is told to the model."""
    with Client(
        base_url=settings.SCIM_URL,
        headers={"Authorization": f"Bearer {settings.SCIM_TOKEN}"},
        timeout=context.remaining(),
    ) as http:
        try:
            yield SyncSCIMClient(http, provider=ScimProvider(models=[User]))
        except SCIMException as exc:
            if 400 <= int(exc.status) < 500 and int(exc.status) not in PASSING:
                raise ToolError(f"the directory refused: {exc}") from exc
            raise


def _made_by(scim: SyncSCIMClient, key: str) -> Account | None:
    """The account this call has made already. The key is compared again: some servers ignore filters."""
    search: SearchRequest[Any] = SearchRequest(filter=f"externalId eq {json.dumps(key)}")
    found = scim.query(User, query_parameters=search)
    accounts = getattr(found, "resources", None) or []
    return next((account for account in accounts if account.external_id == key), None)


def _create(scim: SyncSCIMClient, account: Account) -> Account:
    try:
        made = scim.create(account)
    except ConflictException as exc:
        # Another attempt at this call may have been faster; anybody else's account stays theirs.
        mine = _made_by(scim, _known(account.external_id))
        if mine is None:
            raise ToolError(f"the username {account.user_name} is taken") from exc
        return mine
    if not isinstance(made, User):
        raise TypeError("the directory did not say what it created")
    return made


def _same(username: str | None, other: str) -> bool:
    """User names differ in case only if they differ (RFC 7643, section 4.1.1)."""
    return username is not None and username.casefold() == other.casefold()


def _known(value: str | None) -> str:
    if value is None:
        raise TypeError("the directory left out a required attribute")
    return value
