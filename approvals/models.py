"""Defines the tables of approvals: columns and constraints. People and groups are Django's own."""

from uuid import uuid4

from django.conf import settings
from django.db import models

from runtime.core.enums import GateKind, Risk
from runtime.models import Run

# The agent of the run, and the one that proposed the call, of the path from the root agent to the tool. A request of
# a frame itself has no tool: its path ends with the agent.
ROOT_AGENT = models.Func(
    models.F("path"), template="(%(expressions)s ->> 0)", output_field=models.TextField()
)
ASKING_AGENT = models.Func(
    models.F("path"),
    models.F("tool"),
    template="(%(expressions)s = '' THEN -1 ELSE -2 END)",
    arg_joiner=" ->> CASE WHEN ",
    output_field=models.TextField(),
)


class Request(models.Model):
    """A gate as reviewers see it: a snapshot of the call, and its decision.

    `args`, `schema`, `result_schema` and `statement` are JSON as text, because jsonb rewrites numbers and drops
    repeated keys. `schema` is the digest of a ToolSchema instead, in requests of this release. `statement` is a
    decision as the web process signed it, without digest and id of the request; expiry and cancellation are not signed.
    """

    class Status(models.TextChoices):
        PENDING = "pending"  # not decided
        APPROVED = "approved"  # the call may start, once; in doubt: once more
        DENIED = (
            "denied"  # the call never starts, and the model gets the reason; in doubt: given up
        )
        ANSWERED = "answered"  # a reviewer reported the result of a call in doubt, or gave one instead of a call
        EXPIRED = "expired"  # not decided before the deadline: the call never starts
        CANCELLED = "cancelled"  # the gate closed without a decision

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="requests", db_constraint=False
    )
    gate = models.UUIDField(unique=True)
    kind = models.TextField(choices=[(kind, kind) for kind in GateKind])
    frame = models.TextField()
    call = models.TextField()
    tool = models.TextField()
    args = models.TextField()
    schema = models.TextField()
    result_schema = models.TextField(null=True)  # of the tool, if it declares one
    preview = models.TextField(null=True)  # what the worker found out about the call, as JSON
    path = models.JSONField()
    effect = models.TextField()
    risk = models.TextField()
    sentence = models.TextField()
    action_digest = models.TextField()
    nonce = models.TextField()
    policy_version = models.TextField()
    requester = models.TextField()
    origin = models.JSONField(db_default=[])  # the run's origin at the opening; covered by the MAC
    excluded = models.JSONField(db_default=[])  # the origin, and people who steered the run since
    request_digest = models.TextField()
    seal = models.TextField()  # the engine's MAC over the digest, made at the opening
    seal_key_id = models.TextField()
    status = models.TextField(choices=Status.choices, default=Status.PENDING)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)  # the deadline
    not_before = models.DateTimeField(null=True)  # when a call in doubt may run again
    decided_by = models.TextField(null=True)
    decided_at = models.DateTimeField(null=True)
    effective_at = models.DateTimeField(null=True)  # until then the reviewer can undo it
    reason = models.TextField(null=True)  # verbatim, as the reviewer wrote it
    statement = models.TextField(null=True)
    signature = models.TextField(null=True)  # hex
    key_id = models.TextField(null=True)
    edited = models.TextField(null=True)  # the arguments of an approval with changes, as JSON
    removed_at = models.DateTimeField(null=True)  # when retention took args and sentence
    channel = models.TextField(null=True)  # of the decision: `page` or `api`; None in earlier ones
    rule = models.TextField(
        null=True
    )  # what the policy demands, in the digest; None is the default
    voted = models.JSONField(db_default=[])  # the people whose approvals count so far, for lists
    open_to = models.JSONField(null=True)  # who may vote now, as `Stage.keys`, for lists

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="request_risk",  # lists choose by it
                condition=models.Q(risk__in=[str(risk) for risk in Risk]),
            ),
            models.CheckConstraint(
                name="request_decided_by_somebody",
                condition=models.Q(
                    status="pending",
                    decided_by=None,
                    decided_at=None,
                    reason=None,
                    statement=None,
                    signature=None,
                    key_id=None,
                )
                | models.Q(
                    status__in=["approved", "denied", "answered"],
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    reason__isnull=False,
                    statement__isnull=False,
                    signature__isnull=False,
                    key_id__isnull=False,
                )
                | models.Q(
                    status__in=["expired", "cancelled"],
                    decided_at__isnull=False,
                    reason__isnull=False,
                    statement=None,
                    signature=None,
                    key_id=None,
                ),
            ),
        ]
        indexes = [  # and in Postgres `request_excluded_others`, of `excluded`
            models.Index(fields=["created_at", "id"], name="request_order"),
            models.Index(
                fields=["created_at", "id"],
                name="request_pending",
                condition=models.Q(status="pending"),
            ),
            models.Index(
                fields=["expires_at", "created_at", "id"],
                name="request_deadline",
                condition=models.Q(status="pending"),
            ),
            models.Index(
                fields=["-decided_at", "-id"],
                name="request_decided",
                condition=models.Q(decided_at__isnull=False),
            ),
            models.Index(fields=["requester"], name="request_requester"),
            # The history of decisions, by one of these.
            *(
                models.Index(
                    fields=[column, "-decided_at", "-id"],
                    name=f"request_history_{name}",
                    condition=models.Q(decided_at__isnull=False),
                )
                for column, name in (
                    ("decided_by", "person"),
                    ("requester", "by"),
                    ("tool", "tool"),
                )
            ),
            models.Index(
                ROOT_AGENT,
                models.F("decided_at").desc(),
                models.F("id").desc(),
                name="request_history_root",
                condition=models.Q(decided_at__isnull=False),
            ),
            models.Index(
                ASKING_AGENT,
                models.F("decided_at").desc(),
                models.F("id").desc(),
                name="request_history_agent",
                condition=models.Q(decided_at__isnull=False),
            ),
            models.Index(
                fields=["created_at", "id"],
                name="request_doubt",
                condition=models.Q(status="pending", kind="in_doubt"),
            ),
            models.Index(
                fields=["tool", "-decided_at"],
                name="request_similar",
                condition=models.Q(status="approved", kind="approval"),
            ),
            models.Index(
                fields=["created_at", "id"],
                name="request_ruled",
                condition=models.Q(status="pending", open_to__isnull=False),
            ),
        ]


class Outcome(models.Model):
    """The outcome of the call of a decided request, written with the journal entry at `position`.

    Lists filter by it. It repeats the journal, and no check reads it.
    """

    request = models.OneToOneField(
        Request,
        on_delete=models.PROTECT,
        primary_key=True,
        db_constraint=False,
        related_name="outcome",
    )
    run_id = models.UUIDField()
    frame = models.TextField()
    call = models.TextField()
    outcome = models.TextField()  # a CallOutcome
    position = models.BigIntegerField()
    decided_at = models.DateTimeField()  # of the request, for the order of lists

    class Meta:
        indexes = [
            models.Index(
                fields=["outcome", "-decided_at", "-request"],
                name="outcome_history",
            ),
            models.Index(
                fields=["run_id"],
                name="outcome_in_doubt",
                condition=models.Q(outcome="in_doubt"),
            ),
        ]


class Vote(models.Model):
    """One person's approval of a request that needs several, signed as a decision is.

    Withdrawing a vote deletes it; the audit keeps both acts, and a signed vote names how often its person withdrew.
    """

    request = models.ForeignKey(Request, on_delete=models.PROTECT, related_name="votes")
    person = models.TextField()
    stage = models.IntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    statement = models.TextField()
    signature = models.TextField()  # hex
    key_id = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "person"], name="vote_once"),
        ]


class PolicyAct(models.Model):
    """An act on a version of the policy, signed. A trigger refuses changes and deletions.

    The acts are numbered without gaps, so a deleted one is noticed. The version in force is that of the last act with
    a past `effective_at` that was not withdrawn before.
    """

    class Act(models.TextChoices):
        PROPOSED = "proposed"  # with the text; it waits for another admin
        SCHEDULED = "scheduled"  # by the only admin: in force at `effective_at`
        CONFIRMED = "confirmed"  # by another admin, or on the command line
        WITHDRAWN = "withdrawn"  # before it was in force

    seq = models.IntegerField(primary_key=True)
    act = models.TextField(choices=Act.choices)
    number = models.IntegerField()  # of the version
    text = models.TextField()  # YAML; empty unless the act is PROPOSED
    by = models.TextField(null=True)  # None is the command line
    at = models.DateTimeField()
    effective_at = models.DateTimeField(null=True)
    signature = models.TextField(null=True)  # hex
    key_id = models.TextField(null=True)


class ToolSchema(models.Model):
    """The schema of a tool, to which requests refer by its digest. Web and workers may not change or delete it."""

    digest = models.TextField(primary_key=True)
    body = models.TextField()


class Token(models.Model):
    """A bearer token of the API. Only the hash of the secret is stored.

    A trigger rejects deleting a row, changing its signed columns, and changing `revoked_at` once it is set.
    """

    public_id = models.TextField(primary_key=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tokens"
    )
    secret_hash = models.TextField()
    scopes = models.JSONField()
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    signature = models.TextField(null=True)  # hex; None in unsigned rows, which open nothing
    key_id = models.TextField(null=True)


class Assignment(models.Model):
    """A group or a password that a person was given. A trigger refuses changes and deletions.

    The row with the highest `seq` of a person and a right is the current one. It is signed, so a program that only
    writes to Postgres cannot give or confirm a right, nor restore an earlier row.
    """

    class Act(models.TextChoices):
        ADOPTED = "adopted"  # it was there before assignments were recorded
        GIVEN = "given"  # by an admin, or on the command line
        CONFIRMED = "confirmed"  # by a second admin, or on the command line
        CHANGED = "changed"  # the person chose another password; the giver stays
        ENDED = "ended"  # taken away, or the person was disabled

    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="assignments"
    )
    username = models.TextField()
    what = models.TextField()  # the group's name, or `password`
    seq = models.IntegerField()
    act = models.TextField(choices=Act.choices)
    by = models.TextField(null=True)  # who did this; None is the command line
    at = models.DateTimeField()
    givers = models.JSONField()  # the admin who gave it, then the givers of that admin's own right
    given_at = models.DateTimeField()
    needs_second = models.BooleanField()  # it does not count before a second admin confirms it
    confirmed_by = models.TextField(null=True)  # None with a time is the command line
    confirmed_at = models.DateTimeField(null=True)
    digest = models.TextField(null=True)  # of the stored password
    signature = models.TextField(null=True)  # hex
    key_id = models.TextField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "what", "seq"], name="assignment_order"),
        ]


class Adoption(models.Model):
    """The time at which existing rights were adopted; one row, which only the owner of the tables writes."""

    at = models.DateTimeField()


class AuditEntry(models.Model):
    """An act on a run or request, chained per run by MACs. A trigger refuses to change or delete a row.

    Its `id` has no index: a row is found by run and `seq`.
    """

    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="audit", db_index=False, db_constraint=False
    )
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.TextField(null=True)  # None is the system
    token = models.TextField(null=True)  # the API token the actor used
    act = models.TextField()
    subject = models.TextField()
    detail = models.TextField()  # JSON text
    previous = models.TextField()  # the hash of the row before; empty if `hash` is truncated
    hash = models.TextField()  # the MAC under `key_id`
    key_id = models.TextField(null=True)  # None in rows of earlier versions, whose hash has no key

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="audit_order"),
        ]


class LoginFailures(models.Model):
    """The failed logins of one name from one address; `at` is the last one. Kept until they no longer count."""

    address = models.TextField()  # empty if it is unknown
    username = models.TextField()
    failures = models.IntegerField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["address", "username"], name="login_failures"),
        )


class SavedView(models.Model):
    """A list of the inbox that a person named. `place` holds the parameters of its address, as text."""

    id = models.UUIDField(primary_key=True, default=uuid4)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="saved_views"
    )
    name = models.TextField()
    place = models.JSONField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["owner", "name"], name="saved_view_name"),)
