"""Claims of requests: a person says that they look at one, for ten minutes.

A claim gives no right and takes none. It ends when its person releases it, when its time is over, and when the request
is decided. Of two people who claim a request at once, Postgres lets one row be written.

Asks the agent about the call of a request. The request stays open, and no value of it changes.

Gives people more time to decide. The digest of the request stays, so votes from before stay valid. A deadline is never
shortened, and never extended once it has passed. An agent outside keeps its own: the Agent Approval Protocol promises
that it never changes.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from approvals import clock
from approvals.decisions import checks, commit
from approvals.errors import AlreadyClaimed, AlreadyDecided, Expired, TooManyInquiries
from approvals.models import Approval, ApprovalClaim, Comment, Handover
from approvals.reads import approval_views, deciders
from approvals.reads.approval_views import ApprovalView
from approvals.rights import approval_rights, principals
from approvals.rules import policy
from approvals.signed import audit, rows, statements, votes
from runtime.control import interventions, user_actions
from runtime.control.user_actions import notify, validate_reason, validate_text
from runtime.core.documents.blobs import hash_text
from runtime.core.values.json_values import hash_value
from runtime.core.values.limits import MAX_INQUIRIES, MAX_INQUIRY, MAX_PERSON
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

LASTS: Final = timedelta(minutes=10)

# A claim that has ended, or the person's own, is written again. The person's own keeps its start.
_CLAIM = """
    INSERT INTO approvals_approvalclaim AS c (approval_id, person, at, until)
    SELECT r.id, %(person)s, clock_timestamp(), clock_timestamp() + %(lasts)s
    FROM approvals_approval r WHERE r.id = %(approval)s AND r.status = 'pending'
    ON CONFLICT (approval_id) DO UPDATE SET person = excluded.person, until = excluded.until,
        at = CASE WHEN c.person = excluded.person AND c.until > excluded.at THEN c.at ELSE excluded.at END
    WHERE c.until <= excluded.at OR c.person = excluded.person OR c.person = %(giver)s
    RETURNING until
"""
ASKED = "asked"


def claim(*, approval_id: UUID, actor: Actor) -> datetime:
    """Claim a request that the actor may decide, or extend the actor's own claim; return the end of the claim.

    Raises, in this order: NotFound; Forbidden; Cancelled, Expired or AlreadyDecided; AlreadyClaimed.
    """
    with transaction.atomic():
        approval = require_decidable(approval_id, actor)
        return write_claim(approval, actor.person)


def release(*, approval_id: UUID, actor: Actor) -> None:
    """End the actor's claim, and a hand-over to them. Does nothing without either.

    Raises NotFound, or Forbidden for a token without the scope to decide. A person who lost the right may still do it.
    """
    with transaction.atomic():
        principal = principals.find_principal(actor)
        approval = approval_views.require_readable(approval_id, principal)
        if principal is not None and principals.Scope.APPROVALS_DECIDE not in principal.scopes:
            raise Forbidden(
                "scope", f"This token does not have the scope {principals.Scope.APPROVALS_DECIDE}."
            )
        ended = ApprovalClaim.objects.filter(approval=approval, person=actor.person).delete()[0]
        ended += Handover.objects.filter(approval=approval, person=actor.person).delete()[0]
        if ended:
            notify(approval.run_id, inbox=True, hint=False)


def require_decidable(approval_id: UUID, actor: Actor) -> Approval:
    """Return a pending request that the actor may decide. Raises as `claim` does, except AlreadyClaimed."""
    principal = principals.find_principal(actor)
    approval = approval_views.require_readable(approval_id, principal)
    checks.check_right(approval, principal)
    checks.check_open(approval)
    return approval


def write_claim(approval: Approval, person: str, giver: str = "") -> datetime:
    """Let `person` hold the claim, also in place of `giver`. Raises AlreadyClaimed if another person holds it."""
    parameters: dict[str, Any] = {
        "approval": approval.id,
        "person": person,
        "giver": giver,
        "lasts": LASTS,
    }
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, parameters)
        row = cursor.fetchone()
    if row is None:
        claim = ApprovalClaim.objects.filter(approval=approval).first()
        if claim is None or claim.until <= clock.read_time():  # it was decided meanwhile
            approval.refresh_from_db()
            checks.check_open(approval)
        raise AlreadyClaimed(claim.person if claim else "")
    notify(approval.run_id, inbox=True, hint=False)
    return rows.to_utc(row[0])


MAX_COMMENT: Final = 2_000  # characters
MAX_COMMENTS: Final = 200  # of one request


def add_comment(*, approval_id: UUID, text: object, actor: Actor) -> Comment:
    """Add a comment by a person who may read the request.

    Raises, in this order: NotFound; Forbidden (`scope`); InvalidInput naming `text`.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        principal = principals.find_principal(actor)
        approval = approval_views.require_readable(approval_id, principal)
        if principal is None or principals.Scope.APPROVALS_DECIDE not in principal.scopes:
            raise Forbidden(
                "scope", f"This token does not have the scope {principals.Scope.APPROVALS_DECIDE}."
            )
        comment_text = validate_text("text", text, MAX_COMMENT, required="must not be empty")
        if approval.removed_at is not None:
            raise InvalidInput("text", "cannot be added: this request was removed under retention")
        if Comment.objects.filter(approval=approval).count() >= MAX_COMMENTS:
            raise InvalidInput(
                "text", f"cannot be added: a request has at most {MAX_COMMENTS} comments"
            )
        at = clock.read_time()
        comment = Comment(approval=approval, person=actor.person, text=comment_text, at=at)
        rows.add(comment)
        digest = hash_value(comment_text)
        audit.append_about(approval, actor=actor, act="commented", at=at, comment=digest)
        notify(approval.run_id, hint=False)
    return comment


MAX_NOTE: Final = 500  # characters


def hand_over(*, approval_id: UUID, to: object, note: object, actor: Actor) -> Handover:
    """Hand a request over. Its receiver gets no right: they must be able to decide it already.

    Raises, in this order: NotFound; Forbidden; Cancelled, Expired or AlreadyDecided; InvalidInput naming `to` or
    `note`; AlreadyClaimed if a third person holds the claim; ImproperlyConfigured without the private key.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        approval = require_decidable(approval_id, actor)
        person = validate_text("to", to, MAX_PERSON, required="must name a person")
        if person == actor.person:
            raise InvalidInput("to", "must be another person")
        principal = principals.find_principal(Actor(person=person))
        if principal is None:
            raise InvalidInput("to", f"names {person}, who has no active account")
        denial = approval_rights.find_denial(principal, approval)
        if denial is not None:
            raise InvalidInput(
                "to", f"names {person}, who may not decide this: {denial.detail.rstrip('.')}"
            )
        if person in approval.voted:
            raise InvalidInput("to", f"names {person}, who has approved this already")
        note_text = validate_text("note", "" if note is None else note, MAX_NOTE)
        write_claim(approval, person, giver=actor.person)
        Handover.objects.filter(approval=approval).delete()
        handover = Handover(
            approval=approval, person=person, by=actor.person, note=note_text, at=clock.read_time()
        )
        rows.add(handover)
        detail = {"to": person, "note": hash_value(note_text)}
        audit.append_about(approval, actor=actor, act="handed over", at=handover.at, **detail)
    return handover


def list_receivers(approval_id: UUID, actor: Actor) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the people to whom the actor could hand the request over, and the people who are away."""
    approval = Approval.objects.get(pk=approval_id)
    outlook = deciders.compute_outlook(
        approval, deciders.select_relevant(approval, deciders.list_deciders())
    )
    return tuple(name for name in outlook.able if name != actor.person), outlook.away


_FORGOTTEN: Final = timedelta(hours=1)

_SEEN = """
    INSERT INTO approvals_approvalviewer (approval_id, person, at) VALUES (%(approval)s, %(person)s, clock_timestamp())
    ON CONFLICT (approval_id, person) DO UPDATE SET at = excluded.at
"""
_FORGET = """
    DELETE FROM approvals_approvalviewer WHERE id IN (
        SELECT id FROM approvals_approvalviewer WHERE at < clock_timestamp() - %(age)s::interval
        LIMIT 100 FOR UPDATE SKIP LOCKED)
"""


def record_presence(*, approval_id: UUID, actor: Actor) -> approval_views.ApprovalView:
    """Record that the actor has the request open now, and return the request. Raises NotFound."""
    approval = approval_views.read_approval(approval_id, actor=actor)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_SEEN, {"approval": approval_id, "person": actor.person})
        cursor.execute(_FORGET, {"age": str(_FORGOTTEN)})
    return approval


def inquire(*, approval_id: UUID, question: object, actor: Actor) -> approval_views.ApprovalView:
    """Send an inquiry of a person who may decide the request to its agent, which answers without tools.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; InvalidInput
    naming `question`; TooManyInquiries; RunEnded. Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor))
        approval = loaded.approval
        if commit.is_expired(approval, loaded.at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not approval.is_of_call:
            raise InvalidInput("question", "is only for a call that waits for an approval")
        text = validate_text("question", question, MAX_INQUIRY, required="is required")
        if (
            audit.count_acts(approval.run_id, audit.name_subject(approval.id), act=ASKED)
            >= MAX_INQUIRIES
        ):
            raise TooManyInquiries
        sent = interventions.ask_inquiry(
            run=approval.run_id, gate=approval.gate, by=actor.person, text=text
        )
        audit.append(
            run=approval.run_id,
            actor=actor,
            act=ASKED,
            subject=audit.name_subject(approval.id),
            detail={"question": str(sent), "text": hash_text(text)},
        )
    return approval_views.ApprovalView(stored=approval, reader=loaded.principal)


def send_message(*, approval_id: UUID, text: object, actor: Actor) -> approval_views.ApprovalView:
    """Send the message. The writer may still decide this request, and none that opens later in its run.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; Forbidden
    (`not_eligible`) if the rule does not let reviewers write; InvalidInput naming `text`; RunEnded; TooManyUndelivered.
    Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor))
        approval = loaded.approval
        if commit.is_expired(approval, loaded.at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not approval_rights.may_write(approval):
            raise Forbidden(
                "not_eligible",
                "The policy does not let people who decide this request write to its run.",
            )
        interventions.send_as_reviewer(run=approval.run_id, text=text, actor=actor)
    return approval_views.ApprovalView(stored=approval, reader=loaded.principal)


MAX_DAYS: Final = 30  # from now to the new deadline
MAX_EXTENSIONS: Final = 10  # of one request


def extend(
    *, approval_id: UUID, until: object, reason: object, actor: Actor, zone: tzinfo | None = None
) -> ApprovalView:
    """Extend the deadline of a pending request, by a person who may decide it or an admin.

    `until` is a time as RFC 3339 writes it; one without an offset is in `zone`. Raises, in this order: NotFound;
    Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; InvalidInput naming `until` or `reason`;
    RunEnded. Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor), admins=True)
        approval, at = loaded.approval, loaded.at
        if commit.is_expired(approval, at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not loaded.is_open:
            raise AlreadyDecided(None)
        moment = _read_deadline(until, zone, approval, at)
        text = validate_reason(reason, "is required to extend")
        document = statements.sign_extension(approval, until=moment, by=actor.person, reason=text)
        user_actions.extend(run=approval.run_id, document=document)
        approval.first_expires_at, approval.expires_at = approval.opened_until, moment
        approval.extensions = statements.append_extension(approval, document)
        follows = policy.find_next_step(
            votes.read_demands(approval), approval.opened_until, at, moment
        )
        assert follows is not None  # it has a deadline
        approval.next_step, approval.next_at = follows.step, follows.at
        approval.save(update_fields=_WRITTEN)
        audit.append_about(
            approval, actor=actor, act="extended", at=at, until=str(moment), reason=text
        )
    return ApprovalView(stored=approval, reader=loaded.principal)


_WRITTEN = ("first_expires_at", "expires_at", "extensions", "next_step", "next_at")


def _read_deadline(
    until: object, zone: tzinfo | None, approval: Approval, at: datetime
) -> datetime:
    """Return the new deadline in UTC. Raises InvalidInput naming `until`."""
    if approval.expires_at is None:
        raise InvalidInput("until", "is not for this request, which has no deadline")
    if approval.is_external:
        raise InvalidInput("until", "cannot change: the agent outside that asks set this deadline")
    if len(statements.read_extensions(approval)) >= MAX_EXTENSIONS:
        raise InvalidInput("until", f"was extended {MAX_EXTENSIONS} times, which is the limit")
    try:
        moment = datetime.fromisoformat(str(until))
        if moment.tzinfo is None and zone is None:
            raise ValueError("no offset")
        moment = moment.replace(tzinfo=moment.tzinfo or zone).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        example = "must be a time with its zone, as in 2030-01-31T09:00:00Z"
        raise InvalidInput("until", example) from exc
    if not approval.expires_at < moment <= at + timedelta(days=MAX_DAYS):
        raise InvalidInput(
            "until", f"must be after the present deadline, and at most {MAX_DAYS} days ahead"
        )
    return moment
