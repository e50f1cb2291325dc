"""Defines the tables of approvals: their votes and outcomes, and comments, claims, hand-overs and open pages."""

from datetime import datetime
from typing import ClassVar
from uuid import uuid4

from django.db import models
from django.db.models.lookups import Exact

from approvals.models.signed import SignedRow
from runtime.core.documents import external_call
from runtime.core.values.enums import GateKind, Risk
from runtime.keyring import purposes
from runtime.models import Run

# The agent of the run, and the one that proposed the call, of the path from the root agent to the tool. An approval of
# a frame itself has no tool: its path ends with the agent.
ROOT_AGENT = models.Func(
    models.F("path"), template="(%(expressions)s ->> 0)", output_field=models.TextField()
)
ASKING_AGENT = models.Func(
    models.F("path"),
    models.F("tool"),
    arg_joiner=" ->> CASE WHEN ",  # Django compares the order with that of the migration
    template="(%(expressions)s = '' THEN -1 ELSE -2 END)",
    output_field=models.TextField(),
)
# The conditions of the properties of these names.
OF_CALL = models.Q(kind=GateKind.APPROVAL)
IN_DOUBT = models.Q(kind=GateKind.IN_DOUBT)


class Approval(models.Model):
    """A gate as reviewers see it: a snapshot of the call, and its decision.

    `args`, `schema`, `result_schema` and `statement` are JSON as text, because jsonb rewrites numbers and drops
    repeated keys. `schema` is the digest of a ToolSchema. `statement` is a decision as the web process signed it,
    without digest and id of the approval; expiry and cancellation are not signed.
    """

    # What pages and the API do not show by this name: it verifies others, or serves lists.
    INTERNAL: ClassVar = (
        "run_id",
        "action_digest",
        "nonce",
        "excluded",
        "approval_digest",
        "seal",
        "seal_key_id",
        "statement",
        "signature",
        "key_id",
        "voted_for",
        "open_to",
        "readers",
        "next_step",
        "escalated",
        "extensions",
    )

    class Status(models.TextChoices):
        PENDING = "pending"  # not decided
        APPROVED = "approved"  # the call may start, once; in doubt: once more
        DENIED = "denied"  # also with changes requested: the call never starts, and the model gets the reason
        ANSWERED = "answered"  # a reviewer reported the result of a call in doubt, or gave one instead of a call
        EXPIRED = "expired"  # not decided before the deadline: the call never starts
        CANCELLED = "cancelled"  # the gate closed without a decision

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="approvals", db_constraint=False
    )
    gate = models.UUIDField(unique=True)
    kind = models.TextField()  # a GateKind
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
    approval_digest = models.TextField()
    seal = models.TextField()  # the engine's MAC over the digest, made at the opening
    seal_key_id = models.TextField()
    status = models.TextField(default=Status.PENDING)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)  # the deadline
    first_expires_at = models.DateTimeField(null=True)  # before the first extension; in the digest
    extensions = models.TextField(null=True)  # as JSON, each signed: see `signed.extensions`
    not_before = models.DateTimeField(null=True)  # when a call in doubt may run again
    decided_by = models.TextField(null=True)
    decided_at = models.DateTimeField(null=True)
    effective_at = models.DateTimeField(null=True)  # until then the reviewer can undo it
    reason = models.TextField(null=True)  # verbatim, as the reviewer wrote it
    statement = models.TextField(null=True)
    signature = models.TextField(null=True)  # hex
    key_id = models.TextField(null=True)
    edited = models.TextField(null=True)  # the arguments of an approval with changes, as JSON
    edited_preview = models.TextField(
        null=True
    )  # what the call does with these, as its approver saw it, as JSON
    removed_at = models.DateTimeField(null=True)  # when retention took args and sentence
    channel = models.TextField(null=True)  # of the decision: `page`, `batch`, `api`, `allowance`
    rule = models.TextField(
        null=True
    )  # what the policy demands, in the digest; None is the default
    decided_for = models.TextField(null=True)  # the absent person in whose place a deputy decided
    voted = models.JSONField(db_default=[])  # the people whose approvals count so far, for lists
    voted_for = models.JSONField(db_default=[])  # the absent people in whose place deputies voted
    open_to = models.JSONField(null=True)  # who may vote now, as `Stage.keys`, for lists
    # Who may decide at some time, as `Stage.keys`, and so may read; None is every reviewer of the risk.
    readers = models.JSONField(null=True)
    revises = models.UUIDField(null=True)  # the gate of the approval that it revises
    revision = models.SmallIntegerField(db_default=1)  # the first proposal is 1
    allowance = models.UUIDField(null=True)  # that passed the call; covered by the MAC
    allowance_use = models.IntegerField(null=True)  # the number of this use, from 1
    # What follows if no person decides, for lists; no check reads it.
    next_step = models.TextField(db_default="", default="")  # see `policy.NextStep`
    next_at = models.DateTimeField(null=True)
    escalated = models.SmallIntegerField(db_default=0, default=0)  # steps that the sweeper recorded
    undecidable_at = models.DateTimeField(null=True)  # since when too few people are left

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="approval_risk",  # lists choose by it
                condition=models.Q(risk__in=[str(risk) for risk in Risk]),
            ),
            models.CheckConstraint(
                name="approval_decided_by_somebody",
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
        indexes = [  # and in Postgres `approval_excluded_others`, of `excluded`
            # The inbox, the oldest first.
            models.Index(
                fields=["created_at", "id"],
                name="approval_pending",
                condition=models.Q(status="pending"),
            ),
            # The inbox by deadline, and the requests that the sweeper ends.
            models.Index(
                fields=["expires_at", "created_at", "id"],
                name="approval_deadline",
                condition=models.Q(status="pending"),
            ),
            # The important ones above the inbox.
            models.Index(
                fields=["expires_at", "created_at", "id"],
                name="approval_high_risk",
                condition=models.Q(status="pending", risk="high"),
            ),
            # The history of all decisions.
            models.Index(
                fields=["-decided_at", "-id"],
                name="approval_decided",
                condition=models.Q(decided_at__isnull=False),
            ),
            # Requests of a requester, who may not decide them.
            models.Index(
                fields=["requester"],
                name="approval_own_pending",
                condition=models.Q(status="pending"),
            ),
            # The history by person, requester and tool, and the last similar approval of a tool.
            *(
                models.Index(
                    fields=[column, "-decided_at", "-id"],
                    name=f"approval_history_{name}",
                    condition=models.Q(decided_at__isnull=False),
                )
                for column, name in (
                    ("decided_by", "person"),
                    ("requester", "by"),
                    ("tool", "tool"),
                )
            ),
            # The history of a person who was absent, and of those who voted.
            models.Index(
                fields=["decided_for", "-decided_at", "-id"],
                name="approval_history_deputy",
                condition=models.Q(decided_at__isnull=False, decided_for__isnull=False),
            ),
            models.Index(
                fields=["-decided_at", "-id"],
                name="approval_history_votes",
                condition=models.Q(decided_at__isnull=False) & ~models.Q(voted=[]),
            ),
            # The history of an agent: of the run, and of the call if that is another one.
            models.Index(
                ROOT_AGENT,
                models.F("decided_at").desc(),
                models.F("id").desc(),
                name="approval_history_root",
                condition=models.Q(decided_at__isnull=False),
            ),
            models.Index(
                ASKING_AGENT,
                models.F("decided_at").desc(),
                models.F("id").desc(),
                name="approval_history_asking",
                condition=models.Q(decided_at__isnull=False)
                & ~models.Q(Exact(ASKING_AGENT, ROOT_AGENT)),
            ),
            # Calls with an unknown outcome above the inbox.
            models.Index(
                fields=["created_at", "id"],
                name="approval_doubt",
                condition=models.Q(status="pending", kind="in_doubt"),
            ),
            # Requests that a rule leaves to some people.
            models.Index(
                fields=["created_at", "id"],
                name="approval_ruled",
                condition=models.Q(status="pending", open_to__isnull=False),
            ),
            # What the sweeper escalates, and what too few people are left to decide.
            models.Index(
                fields=["next_at"],
                name="approval_escalates",
                condition=models.Q(status="pending", next_step="escalate"),
            ),
            models.Index(
                fields=["undecidable_at"],
                name="approval_undecidable",
                condition=models.Q(status="pending", undecidable_at__isnull=False),
            ),
        ]

    @property
    def opened_until(self) -> datetime | None:
        """The deadline with which it opened. Its digest and its escalation keep this one."""
        return self.first_expires_at or self.expires_at

    @property
    def is_in_doubt(self) -> bool:
        """Whether it asks for the outcome of a call in doubt."""
        return self.kind == GateKind.IN_DOUBT

    @property
    def is_question(self) -> bool:
        """Whether an agent asks a person."""
        return self.kind == GateKind.QUESTION

    @property
    def is_of_call(self) -> bool:
        """Whether it asks if a call may start."""
        return self.kind == GateKind.APPROVAL

    @property
    def is_limit(self) -> bool:
        """Whether a frame has used up a limit."""
        return self.kind == GateKind.LIMIT

    @property
    def is_external(self) -> bool:
        """Whether it is about a call that an instance outside makes."""
        return bool(self.path == [external_call.AGENT, external_call.TOOL])


class ApprovalOutcome(models.Model):
    """The outcome of the call of a decided approval, written with the journal entry at `position`.

    Lists filter by it. It repeats the journal, and no check reads it. A column of the approval would write an entry in
    each of its indexes.
    """

    approval = models.OneToOneField(
        Approval,
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
    decided_at = models.DateTimeField()  # of the approval, for the order of lists

    class Meta:
        indexes = [
            models.Index(
                fields=["outcome", "-decided_at", "-approval"],
                name="approval_outcome_history",
            ),
            models.Index(
                fields=["run_id"],
                name="approval_outcome_in_doubt",
                condition=models.Q(outcome="in_doubt"),
            ),
        ]


class Vote(SignedRow):
    """One person's vote for an approval that needs several, signed as a decision is.

    Withdrawing a vote deletes it; the audit keeps both acts, and a signed vote names how often its person withdrew.
    """

    PURPOSE = purposes.DECISIONS
    KIND = "vote"
    SIGNED_FIELDS = (
        *("verdict", "approval_id", "approval_digest", "person", "for_person"),
        *("stage", "reason", "at", "withdrawn"),
    )
    LATER_FIELDS = ("authenticated",)

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="votes")
    person = models.TextField()
    for_person = models.TextField(null=True)  # the absent person in whose place they voted
    stage = models.IntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    verdict = models.TextField()
    authenticated = models.JSONField(null=True)  # as in a statement, if the policy asks for it
    # By the audit, how often the person had withdrawn a vote on the approval.
    withdrawn: int

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "person"], name="vote_once"),
        ]

    @property
    def approval_digest(self) -> str:
        """The digest of the approval that they voted for."""
        return self.approval.approval_digest


class ToolSchema(models.Model):
    """The schema of a tool, to which approvals refer by its digest. Web and workers may not change or delete it."""

    digest = models.TextField(primary_key=True)
    body = models.TextField()


class ReviewTime(models.Model):
    """How one person read an approval before their decision or vote, as their browser measured it.

    Nothing depends on these values: the browser may send any. Retention deletes the row with the approval's arguments.
    `sections` names each section of the page, with whether it came into view. `considered` is computed when it is
    stored. After an undo `decided_at` is empty until the person decides again.
    """

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="readings")
    person = models.TextField()
    first_seen_at = models.DateTimeField(null=True)  # in a list
    opened_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    visible_ms = models.IntegerField()  # while the tab was in front
    reading_ms = models.IntegerField()  # that the approval's words take
    sections = models.JSONField()
    considered = models.BooleanField()
    channel = models.TextField()
    edits = models.IntegerField()  # arguments that the person changed
    undone = models.IntegerField(db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval", "person"], name="review_time_once"),
        ]
        indexes = [
            models.Index(
                fields=["-decided_at"],
                name="review_time_decided",
                condition=models.Q(decided_at__isnull=False),
            ),
        ]


class DailyDecisions(models.Model):
    """The requests that closed on a day (UTC): their number by verdict, and how long people took.

    `median` and `p90` are seconds from the request to the decision of a person, None if no person decided.
    """

    day = models.DateField(primary_key=True)
    verdicts = models.JSONField()
    median = models.FloatField(null=True)
    p90 = models.FloatField(null=True)


class Comment(SignedRow):
    """A person's comment on an approval, signed. Never changed, never sent to the agent; retention deletes it."""

    PURPOSE = purposes.DECISIONS  # it can lead a reviewer to approve
    KIND = "comment"
    SIGNED_FIELDS = ("id", "approval_id", "person", "text", "at")

    id = models.UUIDField(primary_key=True, default=uuid4)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="comments")
    person = models.TextField()
    text = models.TextField()
    at = models.DateTimeField()


class ApprovalClaim(models.Model):
    """The person who looks at an approval until `until`. Other people may still decide it: this gives no right."""

    approval = models.OneToOneField(
        Approval, on_delete=models.PROTECT, primary_key=True, related_name="claim"
    )
    person = models.TextField()
    at = models.DateTimeField()
    until = models.DateTimeField()


class Handover(SignedRow):
    """The last hand-over of an approval to a person, signed, until it is decided or given back. No right."""

    PURPOSE = purposes.DECISIONS  # its note can lead its reader to approve
    KIND = "hand-over"
    SIGNED_FIELDS = ("approval_id", "person", "by", "note", "at")

    approval = models.OneToOneField(
        Approval, on_delete=models.PROTECT, primary_key=True, related_name="handover"
    )
    person = models.TextField()
    by = models.TextField()
    note = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["person"], name="handover_person")]


class ApprovalViewer(models.Model):
    """A person who has the page of an approval open, as the page last said. Old rows are deleted."""

    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="viewers")
    person = models.TextField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["approval", "person"], name="approval_viewer_once"),
        )
