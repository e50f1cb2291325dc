"""Serves the instances of agents outside in the API, to people. The instances themselves use their own protocol.

An instance is created by that protocol too, with a person's token.
"""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Field, Router, Schema
from pydantic import WithJsonSchema

from approvals.decisions import external_requests
from approvals.errors import UnknownInstance
from approvals.people import instances, tokens
from approvals.people.instances import InstancePage
from approvals.web.api.requests import parse_id
from runtime.errors import InvalidInput
from runtime.web.requests import Authenticated, Body

router = Router(tags=["instances"])

_NAME = {"type": "string", "minLength": 1, "maxLength": tokens.MAX_NAME}
_DAYS = {"type": ["integer", "null"], "minimum": 1, "maximum": tokens.MAX_DAYS}


class InstanceOut(Schema):
    """An instance of an agent outside. It says itself which `framework` it is.

    `state` is `active`, `ended`, `owner disabled`, or `not signed` for a row that another program wrote.
    """

    id: UUID
    name: str
    owner: str = Field(alias="owner.username")
    created_at: datetime
    last_request_at: datetime | None
    framework: str
    open_requests: int
    state: str


class InstancesOut(Schema):
    """Instances, the newest first and those that ended last. `omitted` is the number of further matches."""

    items: list[InstanceOut]
    omitted: int


class ProvisionerTokenOut(Schema):
    """A token with which programs provision instances. Its public `id` says which one it is."""

    id: str = Field(alias="public_id")
    owner: str = Field(alias="owner.username")
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class ProvisionerTokensOut(Schema):
    """The newest valid tokens of people who may provision."""

    items: list[ProvisionerTokenOut]


class ProvisionerTokenIn(Body):
    """The purpose of a new token, and after how many days it expires; without them never."""

    name: Annotated[Any, WithJsonSchema(_NAME)] = None
    days: Annotated[Any, WithJsonSchema(_DAYS)] = None


class NewProvisionerTokenOut(Schema):
    """A new token. Only this answer has its text, `token`."""

    id: str
    token: str
    expires_at: datetime | None


class EndedInstanceOut(Schema):
    """How many pending requests of the instance were cancelled."""

    cancelled: int


@router.get("/instances", response=InstancesOut)
def list_instances(request: Authenticated, q: str = "") -> InstancePage:
    """List the instances of all people. Every word of `q` must occur in the name or the owner, or be the id."""
    instances.require_provisioner(request.auth)
    return instances.list_instances(q)


@router.get("/instances/tokens", response=ProvisionerTokensOut)
def list_provisioner_tokens(request: Authenticated) -> dict[str, Any]:
    """List the valid tokens that manage instances, of all people who may, the newest first."""
    instances.require_provisioner(request.auth)
    return {"items": instances.list_provisioner_tokens()}


@router.post("/instances/tokens", response=NewProvisionerTokenOut)
def create_provisioner_token(request: Authenticated, body: ProvisionerTokenIn) -> dict[str, Any]:
    """Create a token of yours that manages instances alone. With a token it needs `admin` too, and ends no later."""
    instances.require_provisioner(request.auth)
    if not isinstance(body.name, str) or not body.name:
        raise InvalidInput("name", "must be text: what the token is for")
    if body.days is not None and type(body.days) is not int:
        raise InvalidInput("days", "must be a number, or null")
    token, plain = instances.create_token(name=body.name, days=body.days, actor=request.auth)
    return {"id": token.public_id, "token": plain, "expires_at": token.expires_at}


@router.post("/instances/tokens/{token}/revoke", response=ProvisionerTokenOut)
def revoke_provisioner_token(request: Authenticated, token: str) -> Any:
    """Revoke a token of any provisioner, without `admin` only the caller's. The instances that it made do not end."""
    return instances.revoke_token(token, actor=request.auth)


@router.post("/instances/{instance}/end", response=EndedInstanceOut)
def end_instance(request: Authenticated, instance: str) -> dict[str, Any]:
    """End an instance of any person, and cancel its pending requests. Repeating it has no effect."""
    instances.require_provisioner(request.auth)
    instance_id = parse_id(instance, UnknownInstance)
    return {"cancelled": external_requests.end_instance(instance=instance_id, actor=request.auth)}
