"""Serves allowances in the API."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals.errors import UnknownAllowance
from approvals.governance import allowance_changes
from approvals.governance.allowances import Allowance
from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.rules import allowance_terms as matching
from approvals.rules.allowance_terms import MAX_COUNT, MAX_DAYS, LimitRule
from approvals.web.api.requests import parse_id
from runtime.web.requests import Authenticated, Body, Reason
from runtime.web.schemas import with_fields_of

router = Router(tags=["allowances"])

LIMITS_SCHEMA = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"rule": {"enum": [*LimitRule]}, "values": {"type": "array", "items": {}}},
        "required": ["rule"],
    },
}


class LimitOut(Schema):
    """The limit of an argument."""

    rule: str
    values: list[Any]


_OWN = "id used left proposed_by proposed_at confirmed_by confirmed_at revoked_by revoked_at reason"


@with_fields_of(Allowance, _OWN)
class AllowanceOut(Schema):
    """An allowance: it passes at most `count` calls of `tool` by the agent at the end of `path`, until `ends_at`.

    `state` is `proposed`, `in force`, `used up`, `ended` or `revoked`. `request` is the one from which it was proposed.
    """

    tool: str
    path: list[str]
    risk: str
    effect: str
    limits: dict[str, LimitOut]
    count: int
    ends_at: datetime
    state: str
    request: str


@with_fields_of(allowance_changes.Use, "number at sentence")
class AllowanceUseOut(Schema):
    """A use of an allowance. `request` is null if you may not read the request of the call."""

    request: UUID | None

    @staticmethod
    def resolve_request(use: allowance_changes.Use) -> UUID | None:
        """Return the id of the approval."""
        return use.approval_id


class AllowanceDetailOut(AllowanceOut):
    """An allowance with its newest uses."""

    uses: list[AllowanceUseOut]


class AllowancesOut(Schema):
    """The newest allowances, the newest first. `broken` says why others do not verify: those pass nothing."""

    items: list[AllowanceOut]
    broken: list[str]


class AllowanceIn(Body):
    """An allowance to propose. `limits` has a limit for each argument of the request, named with dots: `customer.id`.

    An argument without a limit needs the rule `any`. Fields accept any value, so that a caller who may not read the
    request gets 404, not 422.
    """

    limits: Annotated[Any, WithJsonSchema(LIMITS_SCHEMA)] = None
    count: Annotated[
        Any, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_COUNT})
    ] = None
    days: Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_DAYS})] = (
        None
    )


class RevocationIn(Body):
    """Why the allowance is revoked; may be empty."""

    reason: Reason = ""


@router.get("/allowances", response=AllowancesOut)
def list_allowances(request: Authenticated) -> dict[str, Any]:
    """List the newest allowances. People who decide and admins may read them."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    if not allowance_changes.may_read_allowances(principals.find_principal(request.auth)):
        raise UnknownAllowance
    rows, broken = allowance_changes.list_allowances(request.auth)
    return {"items": [_build_fields(row) for row in rows], "broken": list(broken)}


@router.get("/allowances/{allowance}", response=AllowanceDetailOut)
def read_allowance(request: Authenticated, allowance: str) -> dict[str, Any]:
    """Read one allowance with its newest uses."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    row, uses = allowance_changes.read_with_uses(
        parse_id(allowance, UnknownAllowance), request.auth
    )
    return {**_build_fields(row), "uses": uses}


@router.post("/approvals/{approval}/allowance", response=AllowanceOut)
def propose_allowance(request: Authenticated, approval: str, body: AllowanceIn) -> dict[str, Any]:
    """Propose an allowance for calls like that of a request. A second person must confirm it."""
    allowance = allowance_changes.propose(
        parse_id(approval), limits=body.limits, count=body.count, days=body.days, actor=request.auth
    )
    return _build_fields(allowance_changes.read_with_uses(allowance, request.auth)[0])


@router.post("/allowances/{allowance}/confirm", response=AllowanceOut)
def confirm_allowance(request: Authenticated, allowance: str) -> dict[str, Any]:
    """Put a proposed allowance in force, as the second person."""
    allowance_id = parse_id(allowance, UnknownAllowance)
    allowance_changes.confirm(allowance_id, actor=request.auth)
    return _build_fields(allowance_changes.read_with_uses(allowance_id, request.auth)[0])


@router.post("/allowances/{allowance}/revoke", response=AllowanceOut)
def revoke_allowance(request: Authenticated, allowance: str, body: RevocationIn) -> dict[str, Any]:
    """Revoke an allowance at once, or withdraw its proposal."""
    allowance_id = parse_id(allowance, UnknownAllowance)
    allowance_changes.revoke(allowance_id, actor=request.auth, reason=body.reason)
    return _build_fields(allowance_changes.read_with_uses(allowance_id, request.auth)[0])


def _build_fields(row: allowance_changes.AllowanceRow) -> dict[str, Any]:
    allowance = row.allowance
    return {
        **{name: getattr(allowance, name) for name in _OWN.split()},
        "tool": allowance.terms.action.tool,
        "path": list(allowance.terms.action.path),
        "risk": allowance.terms.action.risk,
        "effect": allowance.terms.action.effect,
        "limits": {
            matching.format_path(limit.path): {
                "rule": str(limit.rule),
                "values": list(limit.values),
            }
            for limit in allowance.terms.limits
        },
        "count": allowance.terms.count,
        "ends_at": allowance.terms.ends_at,
        "state": row.state,
        "request": allowance.terms.request,
    }
