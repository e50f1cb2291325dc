"""Sends requests to a SCIM 2.0 directory (RFC 7644), and interprets its answers.

An account carries the idempotency key of the call that made it as its `externalId`. By this key a repeated call finds
the account of the first attempt, and never adopts an account of another call.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from httpx2 import Client, ConnectError, ConnectTimeout, Request, Response
from scim2_client import SCIMClientException
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

from agents.sdk import FailureCause, NotDone, ToolContext, ToolError
from runtime.network import load_authorities, retry_after_seconds

Account = User[Any]

# Temporary, or another client was faster: a retry may help, but the model cannot.
PASSING = {408, 412, 425, 429}


def create(context: ToolContext, full_name: str, email: str, username: str) -> dict[str, str]:
    """Create the account, or find the one that this call made before. Return its id and username."""
    with _open_directory(context) as scim:
        account = _find_account(scim, context.key) or _create(
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
    return {"id": _require_value(account.id), "username": _require_value(account.user_name)}


def set_roles(
    context: ToolContext, account_id: str, username: str, roles: list[dict[str, str]]
) -> None:
    """Give the account these roles and no others."""
    with _open_directory(context) as scim:
        _read_account(scim, account_id, username)
        replace: PatchOperation[Any] = PatchOperation(
            op=PatchOperation.Op.replace_, path="roles", value=roles
        )
        scim.modify(User, account_id, PatchOp[Account](operations=[replace]))


def read_roles(context: ToolContext, account_id: str, username: str) -> list[str]:
    """Return the roles that the account has now, in order."""
    with _open_directory(context) as scim:
        account = _read_account(scim, account_id, username)
    return sorted(str(role.value) for role in account.roles or [])


def add_entitlement(context: ToolContext, account_id: str, username: str, entitlement: str) -> None:
    """Give the account one more entitlement, unless it has it."""
    with _open_directory(context) as scim:
        account = _read_account(scim, account_id, username)
        if entitlement not in [row.value for row in account.entitlements or []]:
            add: PatchOperation[Any] = PatchOperation(
                op=PatchOperation.Op.add, path="entitlements", value=[{"value": entitlement}]
            )
            scim.modify(User, account_id, PatchOp[Account](operations=[add]))


@dataclass(slots=True)
class _Wire:
    """Records the last answer, and whether a write may have been done."""

    status: int | None = None
    after: float | None = None
    wrote: bool = False

    def request(self, request: Request) -> None:
        self.status = self.after = None
        self.wrote |= request.method != "GET"

    def note_response(self, response: Response) -> None:
        self.status = response.status_code
        self.after = retry_after_seconds(response.headers.get("Retry-After"))
        if 400 <= self.status < 500:
            self.wrote = False  # each tool writes once, and this write was refused

    @property
    def refused(self) -> bool:
        return self.status is not None and 400 <= self.status < 500 and self.status not in PASSING

    @property
    def cause(self) -> FailureCause:
        if self.status is None:
            return FailureCause.NETWORK
        return FailureCause.LIMIT if self.status == 429 else FailureCause.PROVIDER

    def is_certainly_undone(self, exc: Exception) -> bool:
        """Say whether nothing was written, so that another attempt is safe."""
        passing = self.status is None or self.status in PASSING or self.status >= 500
        never_left = isinstance(exc.__cause__, ConnectError | ConnectTimeout)
        return passing and (never_left or not self.wrote)


@contextmanager
def _open_directory(context: ToolContext) -> Iterator[SyncSCIMClient]:
    """Open a client for one attempt. Refusals of the directory go to the model.

    Raises NotDone if certainly nothing happened. Otherwise the effect class decides whether to retry.
    """
    wire = _Wire()
    with Client(
        base_url=settings.SCIM_URL,
        headers={"Authorization": f"Bearer {settings.SCIM_TOKEN}"},
        timeout=context.remaining(),
        verify=load_authorities(),
        event_hooks={"request": [wire.request], "response": [wire.note_response]},
    ) as http:
        try:
            yield SyncSCIMClient(http, provider=ScimProvider(models=[User]))
        except (SCIMException, SCIMClientException) as exc:
            if wire.refused:
                raise ToolError(f"the directory refused: {exc}") from exc
            if wire.is_certainly_undone(exc):
                raise NotDone(
                    f"the directory did nothing: {exc}", after=wire.after, cause=wire.cause
                ) from exc
            raise


def _read_account(scim: SyncSCIMClient, account_id: str, username: str) -> Account:
    account = scim.query(User, account_id)
    name = account.user_name if isinstance(account, User) else None
    if not isinstance(account, User) or name is None or name.casefold() != username.casefold():
        raise ToolError(f"the account {account_id} does not belong to {username}")
    return account


def _find_account(scim: SyncSCIMClient, key: str) -> Account | None:
    """Find the account that this call made. The key is compared again, because some servers ignore filters."""
    search: SearchRequest[Any] = SearchRequest(filter=f"externalId eq {json.dumps(key)}")
    response = scim.query(User, query_parameters=search)
    accounts = getattr(response, "resources", None) or []
    return next((account for account in accounts if account.external_id == key), None)


def _create(scim: SyncSCIMClient, account: Account) -> Account:
    try:
        created = scim.create(account)
    except ConflictException as exc:
        # Another attempt at this call may have been faster. An account of another call is not used.
        mine = _find_account(scim, _require_value(account.external_id))
        if mine is None:
            raise ToolError(f"the username {account.user_name} is taken") from exc
        return mine
    if not isinstance(created, User):
        raise TypeError("the directory did not return the created account")
    return created


def _require_value(value: str | None) -> str:
    if value is None:
        raise TypeError("the directory left out a required attribute")
    return value
