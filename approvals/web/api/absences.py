"""Serves absences and deputies in the API."""

from typing import Annotated, Any

from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals.people import absences
from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.web import time_zone as zones
from runtime.web.requests import Authenticated, Body
from runtime.web.schemas import fields_of

router = Router(tags=["approvals"])

Day = Annotated[Any, WithJsonSchema({"type": "string", "format": "date"})]
Name = Annotated[Any, WithJsonSchema({"type": "string"})]


@fields_of(absences.Away, "person deputy starts ends has_begun")
class AwayOut(Schema):
    """An absence that is not over: `deputy` decides in the place of `person` from `starts` until `ends`."""


class AwayIn(Body):
    """Your first and last day away in `zone`, at most 60, and your deputy, who must be able to decide already."""

    deputy: Name = None
    starts: Day = None
    ends: Day = None
    zone: Name = "UTC"


@router.get("/absences", response=list[AwayOut])
def list_absences(request: Authenticated) -> list[absences.Away]:
    """List your absences and those of people whose deputy you are; admins get all."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    principal = principals.principal_of(request.auth)
    if principal is not None and principal.has(Scope.ADMIN):
        return list(absences.all_away())
    absence, standing_in = absences.concerning(request.auth.person)
    return [away for away in (absence, *standing_in) if away is not None]


@router.post("/absences", response=AwayOut)
def announce_absence(request: Authenticated, body: AwayIn) -> absences.Away:
    """Name your deputy for some days. This replaces your earlier absence."""
    of = zones.find_zone(str(body.zone), "zone")
    return absences.announce(
        deputy=body.deputy,
        starts=zones.parse_day(body.starts, "starts", of),
        ends=zones.parse_day(body.ends, "ends", of, after=1),
        actor=request.auth,
    )


@router.post("/absences/{person}/end", response=list[AwayOut])
def end_absence(request: Authenticated, person: str) -> list[absences.Away]:
    """End an absence that you may list."""
    absences.end(person, actor=request.auth)
    return list_absences(request)
