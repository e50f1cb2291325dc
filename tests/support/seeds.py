"""Creates people, published agents, a suspended run and its approval gates, written as the engine does."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from agents.models import PublishedAgent
from approvals import clock
from approvals.decisions.checks import REFUSED
from approvals.decisions.decide import ask_preview, resolve
from approvals.decisions.decide import decide as record_decision
from approvals.models import Approval, AuditEntry
from approvals.people import tokens
from approvals.people.accounts import create_person
from approvals.port.adapter import ApprovalService
from approvals.reads.approval_views import ApprovalView
from approvals.requests import confirmation
from approvals.rules.policy import Group
from approvals.signed import rows
from runtime.core.run.continuation import RunStatus
from runtime.core.values.enums import (
    CallPreview,
    Decision,
    Edit,
    EffectClass,
    GateKind,
    Risk,
    Verdict,
)
from runtime.core.values.json_values import hash_action, hash_value
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import ReviewSnapshot
from runtime.store import pool
from runtime.store.tables.jobs import PREVIEWS

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "security_level": {"type": "integer"}},
    "required": ["username", "security_level"],
}
ARGS: dict[str, Any] = {"username": "new.hire", "security_level": 3}
PATH = ("hr_onboarding", "account_agent", "set_privileges")

PASSWORD = "correct horse battery staple"

GROUPS: dict[str, tuple[Group, ...]] = {
    "ada": (Group.REQUESTERS, Group.REVIEWERS),  # only four eyes stop her on her own runs
    "bea": (Group.REVIEWERS,),
    "cyril": (),
    "admin": (Group.ADMINS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    ada: User
    bea: User
    cyril: User
    admin: User


def assemble() -> Cast:
    """Make everybody, each with PASSWORD."""
    for name, groups in GROUPS.items():
        _create(name, PASSWORD, groups)
    people = {one.username: one for one in User.objects.filter(username__in=GROUPS)}
    return Cast(**people)


def person(username: str, *groups: Group) -> Actor:
    _create(username, "correct horse battery", groups)
    return Actor(person=username)


_now = clock.read_time
_rows: dict[tuple[str, ...], tuple[str, str]] = {}  # of a user and their rights, by what made them
_ROWS = """
SELECT (SELECT json_agg(u)::text FROM auth_user u WHERE id = %(user)s),
  (SELECT json_agg(a)::text FROM approvals_assignment a WHERE person_id = %(user)s)
"""
_INSERT = """
INSERT INTO auth_user SELECT * FROM json_populate_recordset(NULL::auth_user, %(user)s);
INSERT INTO approvals_assignment
  SELECT * FROM json_populate_recordset(NULL::approvals_assignment, %(rights)s);
INSERT INTO auth_group (name) SELECT unnest(%(all)s::text[]) ON CONFLICT DO NOTHING;
INSERT INTO auth_user_groups (user_id, group_id)
  SELECT u.id, g.id FROM auth_user u, auth_group g WHERE username = %(name)s AND name = ANY(%(in)s)
"""


def _create(username: str, password: str, groups: Sequence[Group]) -> None:
    """Create a person as the command line does; the second time by the rows that were stored the first time."""
    made = (str(settings.KEYS_DIR), username, password, *groups)
    with connection.cursor() as cursor:
        if made in _rows and clock.read_time is _now:
            user, rights = _rows[made]
            rows = {"name": username, "user": user, "rights": rights}
            cursor.execute(_INSERT, {**rows, "all": [*groups, Group.ADMINS], "in": [*groups]})
            return
        found = create_person(username=username, password=password, groups=groups)
        if clock.read_time is _now:
            cursor.execute(_ROWS, {"user": found.pk})
            [(user, rights)] = cursor.fetchall()
            _rows[made] = (user, rights)


def run(requester: str = "ada", id: UUID | None = None) -> UUID:
    return Run.objects.create(
        id=id or uuid4(),
        agent="hr_onboarding",
        requester=requester,
        input="{}",
        status=RunStatus.SUSPENDED,
        head="mac:",
    ).id


def digest_of(args: Any) -> str:
    """The digest of the usual call with these arguments."""
    schema = hash_value(SCHEMA)
    return hash_action(
        tool=PATH[-1], schema=schema, args=args, path=PATH, effect=EffectClass.IDEMPOTENT
    )


def snapshot(
    of: UUID,
    *,
    requester: str = "ada",
    risk: Risk = Risk.HIGH,
    args: Any = None,
    call: str = "c2.0",
    kind: GateKind = GateKind.APPROVAL,
    expires_at: datetime | None = None,
    not_before: datetime | None = None,
    schema: dict[str, Any] = SCHEMA,
    result_schema: dict[str, Any] | None = None,
    preview: dict[str, Any] | None = None,
) -> ReviewSnapshot:
    args = ARGS if args is None else args
    return ReviewSnapshot(
        run=of,
        gate=uuid4(),
        kind=kind,
        frame="0.c1.0",
        call=call,
        tool=PATH[-1],
        args=args,
        schema=schema,
        path=PATH,
        effect=EffectClass.IDEMPOTENT,
        risk=risk,
        sentence="Set the privileges of new.hire to security level 3",
        action_digest=digest_of(args),
        requester=requester,
        expires_at=expires_at,
        not_before=not_before,
        result_schema=result_schema,
        preview=preview,
    )


def opened(*snapshots: ReviewSnapshot) -> list[Approval]:
    """The requests of these snapshots, in their order, each with its open gate."""
    while not _asked(snapshots):  # as a step is built again
        pass
    with transaction.atomic():
        for one in snapshots:
            Gate.objects.create(
                id=one.gate,
                run_id=one.run,
                kind=one.kind,
                frame=one.frame,
                call=one.call,
                tool=one.tool,
                path=list(one.path),
            )
    approvals = {
        approval.gate: approval
        for approval in Approval.objects.filter(gate__in=[p.gate for p in snapshots])
    }
    return [approvals[one.gate] for one in snapshots]


def _asked(snapshots: Sequence[ReviewSnapshot]) -> bool:
    """False, with nothing written, if another transaction appended to the audit chain first."""
    try:
        with transaction.atomic():
            for of in dict.fromkeys(one.run for one in snapshots):
                ask([one for one in snapshots if one.run == of])
    except psycopg.errors.UniqueViolation as exc:
        if exc.diag.constraint_name != "audit_order":
            raise
        return False
    return True


def set_clock(patch: pytest.MonkeyPatch, moment: datetime) -> None:
    """Have it be this moment by the clock of the database, as the approvals read it."""
    patch.setattr(clock, "read_time", lambda: moment)
    patch.setattr(rows, "to_utc", lambda _: moment)


def ask(snapshots: Sequence[ReviewSnapshot]) -> None:
    """Write what asks about these gates of one run, as the step that opens them does."""
    of, connection = snapshots[0].run, pool.use_django_connection()
    origin = Run.objects.values_list("origin", flat=True).get(id=of)
    parts = ApprovalService().open(connection, snapshots, origin=origin)
    tables = "".join(f", {part.name} AS ({part.sql})" for part in parts)
    parameters = {name: value for part in parts for name, value in part.parameters.items()}
    connection.execute(
        f"WITH run AS (UPDATE runtime_run SET head = head WHERE id = %(run)s RETURNING id){tables}"
        " SELECT 1",
        {"run": of, **parameters},
    )


def pending(*, requester: str = "ada", **given: Any) -> Approval:
    """One pending request on a run of its own."""
    of = run(requester)
    return opened(snapshot(of, requester=requester, **given))[0]


def in_doubt(*, requester: str = "ada", **given: Any) -> Approval:
    """One call in doubt on a run of its own."""
    return pending(requester=requester, kind=GateKind.IN_DOUBT, **given)


def decide(
    approval: Approval,
    actor: Actor,
    verdict: object = "approve",
    reason: object = "",
    *,
    digest: object = ...,
    **given: Any,
) -> ApprovalView:
    """Decide a request, as it is stored unless there is another digest, with both steps of a high risk."""
    edited = given.get("arguments")
    name = confirmation.find_required_name(approval, edited if isinstance(edited, dict) else None)
    given.setdefault("confirm", name)
    return record_decision(
        approval_id=approval.id,
        verdict=verdict,
        digest=approval.approval_digest if digest is ... else digest,
        reason=reason,
        actor=actor,
        **given,
    )


def preview(approval: Approval, actor: Actor, args: Any, shown: Any) -> UUID:
    """Have this stored as the preview of an edit of the request, as a worker does."""
    asked = ask_preview(
        approval_id=approval.id, digest=approval.approval_digest, arguments=args, actor=actor
    )
    assert asked is not None
    with pool.join_transaction() as own:
        PREVIEWS.begin(own, asked)
        row = PREVIEWS.find(own, asked)
        assert row is not None
        columns = row.build_signed_columns(CallPreview(shown=shown, material=hash_value(shown)))
        PREVIEWS.save(own, asked, of=[row.run], **columns)
        PREVIEWS.end(own, asked)
    return asked


def settle(
    approval: Approval,
    actor: Actor,
    outcome: object = "give_up",
    reason: object = "x",
    **given: Any,
) -> ApprovalView:
    name = confirmation.find_required_name(approval)
    where = {"run": approval.run_id, "gate": approval.gate, "confirm": name, **given}
    return resolve(outcome=outcome, reason=reason, actor=actor, **where)


def bearer(actor: Actor, *scopes: str) -> Actor:
    """The same person with a token of these scopes."""
    owner = User.objects.get(username=actor.person)
    return Actor(person=actor.person, token=tokens.create(owner, scopes)[0].public_id)


def heard(approval: Approval, **changed: Any) -> Decision:
    """The decision as the run hears it."""
    body = json.loads(Signal.objects.get(run=approval.run_id).body)
    said = {name: body[name] for name in ("by", "reason", "result")}
    if body["edit"] is not None:
        preview = body["edit"].pop("preview")
        said["edit"] = Edit(**body["edit"], preview=preview and CallPreview(**preview))
    return replace(Decision(verdict=Verdict(body["verdict"]), **said), **changed)


def verify_decision(approval: Approval, decision: Decision | None = None) -> bool:
    """Verify a decision as the worker does when it receives it. Return whether the run fails."""
    return ApprovalService().verify_decision(
        gate=approval.gate, decision=decision or heard(approval)
    )


def verify_approval(approval: Approval, **given: Any) -> None:
    """Confirm an approval as a worker does before the call starts."""
    call = {"action_digest": approval.action_digest, **given}
    ApprovalService().verify_approval(gate=approval.gate, **call)


def untouched(approval: Approval) -> bool:
    """Tell whether the request, its gate and its run are as they were opened; its audit may have refusals."""
    approval.refresh_from_db()
    acts = AuditEntry.objects.filter(run=approval.run_id).exclude(act__startswith=REFUSED)
    return (
        (approval.status, approval.statement) == (Approval.Status.PENDING, None)
        and Gate.objects.get(pk=approval.gate).state == Gate.State.OPEN
        and not Signal.objects.filter(run=approval.run_id).exists()
        and acts.count() == 1
    )


def moment(seconds: float) -> datetime:
    """Return the time so many seconds from now, or ago if negative."""
    return timezone.now() + timedelta(seconds=seconds)


TOOL: dict[str, Any] = {
    "name": "set_privileges",
    "description": "Set what an account may do.",
    "schema": {
        "type": "object",
        "properties": {"level": {"type": "integer", "minimum": 1}, "key": {"type": "string"}},
        "required": ["level"],
    },
    "effect": "write",
    "risk": "high",
    "approval": True,
    "sentence": "Set the level to {level}",
    "deadline": 30.0,
    "secret_args": ["key"],
    "secret_result": True,
}


def published(name: str = "hr_onboarding", **given: Any) -> PublishedAgent:
    facts: dict[str, Any] = {
        "description": "Brings people in.",
        "fingerprint": "sha256:abc",
        "tools": [TOOL],
        "subagents": ["account_agent"],
        "steps": ["Ask", "Do"],
    }
    return PublishedAgent.objects.create(name=name, **{**facts, **given})


def object_of(**properties: Any) -> dict[str, Any]:
    """The schema of an object that must have all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}
