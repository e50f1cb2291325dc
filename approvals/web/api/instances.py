"""Serves the instances of agents outside in the API, to people. The instances themselves use their own protocol."""

from typing import Annotated, Any

from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals.decisions import external_requests
from approvals.errors import UnknownInstance
from approvals.people import instances
from approvals.people.instances import InstancePage, InstanceRow, InstanceView
from approvals.web.api.requests import id_of
from runtime.errors import InvalidInput
from runtime.web.requests import Authenticated, Body
from runtime.web.schemas import fields_of

router = Router(tags=["instances"])

_NAME = {"type": "string", "minLength": 1, "maxLength": instances.MAX_NAME}


@fields_of(InstanceRow)
class InstanceOut(Schema):
    """An instance of an agent outside. It says itself which `framework` it is.

    `state` is `active`, `ended`, `owner disabled`, or `not signed` for a row that another program wrote.
    """


class InstancesOut(Schema):
    """Instances, the newest first and those that ended last. `omitted` is the number of further matches."""

    items: list[InstanceOut]
    omitted: int


class InstanceIn(Body):
    """The name of a new instance, which reviewers read."""

    name: Annotated[Any, WithJsonSchema(_NAME)] = None


@fields_of(InstanceView, "id name credential")
class NewInstanceOut(Schema):
    """A new instance. Only this answer has its `credential`."""


class EndedInstanceOut(Schema):
    """How many pending requests of the instance were cancelled."""

    cancelled: int


@router.get("/instances", response=InstancesOut)
def list_instances(request: Authenticated, q: str = "") -> InstancePage:
    """List the instances of all people. Every word of `q` must occur in the name or the owner, or be the id."""
    instances.require_provisioner(request.auth)
    return instances.list_page(q)


@router.post("/instances", response=NewInstanceOut)
def create_instance(request: Authenticated, body: InstanceIn) -> InstanceView:
    """Create an instance, of which you are the owner."""
    instances.require_provisioner(request.auth)
    if not isinstance(body.name, str):
        raise InvalidInput("name", "must be text")
    try:
        return instances.provision(instances.InstanceFields(name=body.name), actor=request.auth)
    except InvalidInput as refusal:
        raise InvalidInput("name", refusal.detail) from refusal


@router.post("/instances/{instance}/end", response=EndedInstanceOut)
def end_instance(request: Authenticated, instance: str) -> dict[str, Any]:
    """End an instance of any person, and cancel its pending requests. Repeating it has no effect."""
    instances.require_provisioner(request.auth)
    instance_id = id_of(instance, UnknownInstance)
    return {"cancelled": external_requests.end(instance=instance_id, actor=request.auth)}
