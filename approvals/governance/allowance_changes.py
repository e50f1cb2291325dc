"""What people do with allowances: propose one from a request, confirm it as the second person, revoke it.

Both people must be able to decide the request from which it was proposed, and not as the deputy of another, so neither
is its requester or in the origin of its run. The rights of neither may come from the other.

The lists of allowances say for each reader which of these they may do.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from approvals import clock
from approvals.errors import AllowanceBroken, AllowanceRefused, NotFound, UnknownAllowance
from approvals.governance import allowance_uses, allowances
from approvals.governance.allowances import Act, Allowance, State
from approvals.models import AllowanceAct, Approval
from approvals.reads.approval_views import to_view
from approvals.requests import verification
from approvals.rights import approval_rights, principals
from approvals.rights.access import SecondAdmin
from approvals.rights.principals import Principal, Scope
from approvals.rules import allowance_terms
from approvals.rules import allowance_terms as matching
from approvals.rules.policy import decode_demands, list_decidable_risks
from approvals.signed.audit import log_change, log_refusal
from runtime.control.user_actions import validate_reason
from runtime.core.values.errors import NotJson
from runtime.errors import Forbidden, InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor

MAX_TERMS = 16_384  # characters of JSON: every use stores them
_STATUSES = (Approval.Status.PENDING, Approval.Status.APPROVED)

MAX_USES = 100  # the newest that a page lists


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowanceRow:
    """An allowance for one reader, with its limits in words."""

    allowance: Allowance
    state: State
    limits: tuple[tuple[str, str], ...]
    may_confirm: bool
    may_revoke: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use. `request` is the request of the call, None if the reader may not read it."""

    number: int
    at: datetime
    approval_id: UUID | None
    sentence: str
    requester: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedArgument:
    """An argument that a proposal must limit, with its value in the request. A secret one may only have any value."""

    path: matching.Path
    value: Any
    secret: bool

    @property
    def name(self) -> str:
        """The name of the argument, as errors and the API use it."""
        return matching.format_path(self.path)


def not_allowable(approval: Approval) -> str | None:
    """Say why no allowance can cover calls like that of this request; None if one can."""
    if not approval.is_of_call or approval.status not in _STATUSES:
        return "Only a call that waits for an approval, or was approved, can be the start of an allowance."
    if approval.risk not in allowance_terms.ALLOWED_RISKS:
        return f"An allowance never covers a call of {approval.risk} risk."
    demands = decode_demands(approval.rule)
    if demands is not None and (demands.quorum > 1 or demands.reason or demands.step_up):
        return f"The policy's rule {demands.rule} demands more than an allowance gives."
    if approval.edited is not None or approval.removed_at is not None:
        return "The arguments of this request are not those that were called."
    return None


def list_arguments(approval: Approval) -> tuple[LimitedArgument, ...]:
    """List the arguments of a request that a proposal must limit. Raises ValueError for a row that cannot be read."""
    args = verification.decode_arguments(approval)
    hidden = sealing.list_secret_args(approval.tool, args)
    redacted = sealing.redact_args(approval.tool, args)
    return tuple(
        LimitedArgument(path=path, value=value, secret=bool(path) and path[0] in hidden)
        for path, value in matching.collect_leaves(redacted).items()
    )


def propose(
    approval_id: UUID, *, limits: object, count: object, days: object, actor: Actor
) -> UUID:
    """Propose an allowance for calls like that of a request, and return its id. It waits for a second person.

    `limits` maps the name of each argument to `{"rule", "values"}`. Raises NotFound, Forbidden, AllowanceRefused, and
    InvalidInput naming `limits`, `count` or `days`.
    """
    approval, principal = _read_source(approval_id, actor)
    _require_decider(principal, approval, actor)
    problem = not_allowable(approval) or verification.find_fault(approval)
    if problem:
        raise AllowanceRefused(problem)
    limited = list_arguments(approval)
    if not isinstance(limits, Mapping):
        raise InvalidInput("limits", "must be an object with a limit for each argument")
    if len(limited) > allowance_terms.MAX_ARGUMENTS:
        raise InvalidInput("limits", f"must be at most {allowance_terms.MAX_ARGUMENTS}")
    names = {argument.name for argument in limited}
    if len(names) < len(limited):
        raise InvalidInput(
            "limits", "must name each argument once: two arguments have the same name"
        )
    for name in limits:
        if name not in names:
            raise InvalidInput("limits", f"name {name}, which the call does not have")
    terms = allowance_terms.Terms(
        action=verification.build_action(approval),
        limits=tuple(_limit(argument, limits.get(argument.name)) for argument in limited),
        count=_check_whole_number(count, "count", allowance_terms.MAX_COUNT),
        ends_at=clock.read_time()
        + timedelta(days=_check_whole_number(days, "days", allowance_terms.MAX_DAYS)),
        request=str(approval.id),
    )
    try:
        length = len(terms.text())
    except (NotJson, ValueError, RecursionError) as exc:
        raise InvalidInput("limits", "have a value that is no JSON") from exc
    if length > MAX_TERMS:
        raise InvalidInput("limits", f"are longer than {MAX_TERMS} characters of JSON")
    allowance = uuid4()
    with _run_change():
        allowances.append(allowance, Act.PROPOSED, by=actor.person, seq=1, terms=terms)
        log_change(actor.person, f"proposed the allowance {allowance} of {approval.tool}")
    return allowance


def confirm(allowance: UUID, *, actor: Actor) -> None:
    """Put a proposed allowance in force. Raises UnknownAllowance, Forbidden or AllowanceRefused."""
    proposal = require_readable(allowance, actor)
    terms, state = proposal.terms, proposal.state(clock.read_time())
    if state != "proposed":
        raise AllowanceRefused(f"This allowance does not wait for a confirmation: it is {state}.")
    approval, principal = _read_source(UUID(terms.request), actor)
    _require_decider(principal, approval, actor)
    first = principals.find_principal(Actor(person=proposal.proposed_by))
    _require_decider(first, approval, Actor(person=proposal.proposed_by))
    if not _is_second(principal, first):
        raise AllowanceRefused(
            f"Another person must confirm this allowance: not {proposal.proposed_by}, who proposed it, and no person"
            " whose right comes from them, or theirs from that person."
        )
    with _run_change():
        allowances.append(
            allowance,
            Act.CONFIRMED,
            by=actor.person,
            seq=2,
            terms=terms,
            proposed_by=proposal.proposed_by,
        )
        log_change(actor.person, f"confirmed the allowance {allowance} of {terms.action.tool}")


def revoke(allowance: UUID, *, actor: Actor | None, reason: object = "") -> None:
    """Revoke an allowance, or withdraw its proposal. It counts at once. None is the command line.

    Raises UnknownAllowance, Forbidden, AllowanceRefused, and InvalidInput naming `reason`.
    """
    reason = validate_reason(reason).strip()
    person = None if actor is None else actor.person
    for _ in range(allowance_terms.MAX_COUNT + 2):  # each use in between is another number
        current = (
            _read_allowance(allowance) if actor is None else require_readable(allowance, actor)
        )
        if actor is not None and not may_revoke(principals.find_principal(actor), current):
            raise Forbidden("not_eligible", f"{person} may not revoke this allowance.")
        if current.revoked_at is not None:
            raise AllowanceRefused("This allowance was revoked before.")
        seq, tool = current.next_act, current.terms.action.tool
        try:
            with transaction.atomic():
                allowances.append(allowance, Act.REVOKED, by=person, seq=seq, reason=reason)
                log_change(person, f"revoked the allowance {allowance} of {tool}")
            return
        except IntegrityError:
            continue
    raise AllowanceRefused("This allowance is used too fast to be revoked now. Try again.")


def require_readable(allowance: UUID, actor: Actor) -> Allowance:
    """Return an allowance for a person who may read it. Raises UnknownAllowance, AllowanceRefused."""
    if not may_read_allowances(principals.find_principal(actor)):
        raise UnknownAllowance
    return _read_allowance(allowance)


def may_read_allowances(principal: Principal | None) -> bool:
    """Tell whether this person may read allowances: everyone who decides or administers."""
    return principal is not None and (
        bool(list_decidable_risks(principal.groups)) or principal.has(Scope.ADMIN)
    )


def may_revoke(principal: Principal | None, allowance: Allowance) -> bool:
    """Tell whether this person may revoke it: an admin, or a person who may decide calls of its risk."""
    if principal is None:
        return False
    if principal.has(Scope.ADMIN):
        return True
    decides = allowance.terms.action.risk in list_decidable_risks(principal.groups)
    return decides and principal.has(Scope.APPROVALS_DECIDE)


def can_confirm(
    principal: Principal | None, allowance: Allowance, approval: Approval | None
) -> bool:
    """Tell whether this person could confirm it, for the page. `confirm` checks it again."""
    if principal is None or approval is None or principal.person == allowance.proposed_by:
        return False
    return _find_own_denial(principal, approval) is None


def read_source(
    approval_id: UUID, *, actor: Actor
) -> tuple[tuple[LimitedArgument, ...], str | None]:
    """Return the arguments of a request that a proposal must limit, and why it cannot be proposed; None if it can.

    Raises NotFound.
    """
    approval, principal = _read_source(approval_id, actor)
    denial = _find_own_denial(principal, approval)
    problem = (
        denial.detail if denial else not_allowable(approval) or verification.find_fault(approval)
    )
    return (() if problem else list_arguments(approval)), problem


def list_allowances(actor: Actor) -> tuple[tuple[AllowanceRow, ...], tuple[str, ...]]:
    """Return the newest allowances, and why others do not verify. The caller checked that the actor may read them."""
    newest, broken = allowances.read_newest()
    return _build_rows(newest, principals.find_principal(actor)), broken


def read_with_uses(allowance: UUID, actor: Actor) -> tuple[AllowanceRow, tuple[Use, ...]]:
    """Return one allowance with its newest uses. Raises UnknownAllowance, AllowanceRefused.

    The request of a use shows the call, if the reader may read it.
    """
    stored = require_readable(allowance, actor)
    principal = principals.find_principal(actor)
    (row,) = _build_rows([stored], principal)
    acts = AllowanceAct.objects.filter(allowance=stored.id, act=allowances.Act.USED)
    newest = list(acts.order_by("-seq")[:MAX_USES])
    approvals_by_id = Approval.objects.in_bulk([act.approval for act in newest])
    uses = []
    for act in newest:
        approval = approvals_by_id.get(act.approval)
        if approval is None or not approval_rights.may_read_request(principal, approval):
            approval = None
        uses.append(
            Use(
                number=act.seq - allowances.FIRST_USE + 1,
                at=act.at,
                approval_id=approval.id if approval else None,
                sentence=to_view(approval, principal).sentence if approval else "",
                requester=approval.requester if approval else "",
            )
        )
    return row, tuple(uses)


def _read_source(approval_id: UUID, actor: Actor) -> tuple[Approval, Principal | None]:
    """Read the request from which an allowance is proposed. Raises NotFound."""
    approval = Approval.objects.filter(pk=approval_id).first()
    principal = principals.find_principal(actor)
    if approval is None or not approval_rights.may_read_request(principal, approval):
        raise NotFound
    return approval, principal


def _find_own_denial(principal: Principal | None, approval: Approval) -> Forbidden | None:
    """Say why a person may not decide the request for themselves: a deputy makes no allowance for another."""
    return approval_rights.find_denial_for(principal, approval, None, (), clock.read_time())


def _require_decider(principal: Principal | None, approval: Approval, actor: Actor) -> None:
    denial = _find_own_denial(principal, approval)
    if denial is not None:
        log_refusal(actor.person, f"an allowance of {approval.tool}", denial.code)
        raise denial


def _is_second(second: Principal | None, first: Principal | None) -> bool:
    """Tell whether these are two people, of whom neither gave the other the right to decide."""
    if second is None or first is None or second.person == first.person:
        return False
    both = ((second, first.person), (first, second.person))
    if any(bond.is_bound({other}) for principal, other in both for bond in principal.bonds):
        return False
    return SecondAdmin(author=first.person).is_independent(second.person)


def _limit(argument: LimitedArgument, fields: object) -> allowance_terms.ArgumentLimit:
    field = f"limits.{argument.name}"
    if not isinstance(fields, Mapping):
        raise InvalidInput(
            field, "must be stated; use the rule any for an argument without a limit"
        )
    try:
        rule = allowance_terms.LimitRule(str(fields.get("rule")))
    except ValueError:
        raise InvalidInput(field, f"needs a rule: {', '.join(allowance_terms.LimitRule)}") from None
    values = fields.get("values", [])
    if not isinstance(values, list) or len(values) > allowance_terms.MAX_COUNT:
        raise InvalidInput(
            field, f"needs its values as a list of at most {allowance_terms.MAX_COUNT}"
        )
    if argument.secret and rule is not allowance_terms.LimitRule.ANY:
        raise InvalidInput(field, "is a secret, which can only have the rule any")
    limit = allowance_terms.ArgumentLimit(path=argument.path, rule=rule, values=tuple(values))
    problem = matching.find_problem(limit)
    if problem is not None:
        raise InvalidInput(field, problem)
    return limit


def _check_whole_number(value: object, field: str, maximum: int) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:9])
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise InvalidInput(field, f"must be a whole number from 1 to {maximum}")
    return value


def _read_allowance(allowance: UUID) -> Allowance:
    try:
        stored = allowances.read_allowance(allowance)
    except AllowanceBroken as exc:
        raise AllowanceRefused(f"The stored allowance does not verify: {exc}.") from exc
    if stored is None:
        raise UnknownAllowance
    return stored


@contextmanager
def _run_change() -> Iterator[None]:
    """Run the block in a transaction. Raises AllowanceRefused if another act came in between."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as exc:
        raise AllowanceRefused("Another person was faster. Load the page again.") from exc
    allowance_uses.forget()


def _build_rows(
    stored: Sequence[Allowance], principal: Principal | None
) -> tuple[AllowanceRow, ...]:
    at = clock.read_time()
    waiting = [item.terms.request for item in stored if item.state(at) == "proposed"]
    sources = Approval.objects.in_bulk(waiting) if waiting else {}
    return tuple(
        AllowanceRow(
            allowance=item,
            state=item.state(at),
            limits=tuple(allowance_terms.describe(item.terms.limits)),
            may_confirm=can_confirm(principal, item, sources.get(UUID(item.terms.request))),
            may_revoke=item.state(at) in ("proposed", "in force") and may_revoke(principal, item),
        )
        for item in stored
    )
