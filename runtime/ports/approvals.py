"""Approval requests and decisions; implemented by approvals."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from threading import Event
from typing import Any, Protocol
from uuid import UUID

import psycopg

from runtime.core.run.events import AllowanceUse, GateExtended
from runtime.core.values.enums import Decision, EffectClass, GateKind, Risk
from runtime.ports.access import Actor, Expression
from runtime.ports.agents import CallInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The use of an allowance that passes a call, and the signed confirmation of the allowance for its request."""

    use: AllowanceUse
    proof: tuple[str, str, str]  # text, signature, key id


HELD, HOLD_LIFTED = "held", "hold lifted"  # acts on a run in the audit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSnapshot:
    """The snapshot of one call behind a gate: exactly the call that will run, or that is in doubt.

    `path` goes from the root agent over sub-agents to the tool; `action_digest` covers the whole action. The clock
    decides at `expires_at`. A call in doubt may run again from `not_before`. By then its deadline and a lease have
    passed since its intent, so the first attempt cannot still run. `origin` lists the people in the run's origin, who
    cannot decide in it.

    For a gate of a frame (a hold, a limit, a changed version) `call` and `tool` are empty and `path` ends at the
    agent. `sentence` says why the frame stopped, and `args` holds the facts for the decision.

    `preview` holds what the worker found out about the call before it asked: `shown` is its preview, `before` the
    different one that was approved, `missing` says why there is none, `unjudged` why the risk could not be judged.
    `plan` is the item at work in the plan that the calling agent keeps, with its number. `changed_by` is the
    person who gave the arguments in a fork. None if there is nothing.

    A call that revises an earlier one, to which a person requested changes at the gate `revises`, has the number
    `revision`, from 2 on. `allowed` is the use of the allowance that passes the call, so that its gate is decided as
    it opens.
    """

    run: UUID
    gate: UUID
    kind: GateKind
    frame: str
    call: str
    tool: str
    args: dict[str, Any]
    schema: dict[str, Any]
    path: tuple[str, ...]
    effect: EffectClass
    risk: Risk
    sentence: str
    action_digest: str
    requester: str
    origin: tuple[str, ...] = ()
    expires_at: datetime | None = None
    not_before: datetime | None = None
    result_schema: dict[str, Any] | None = None
    preview: dict[str, Any] | None = None
    revises: UUID | None = None
    revision: int = 1
    allowed: Allowed | None = None


class CallOutcome(StrEnum):
    """The outcome of a call that a person decided about, for lists. The journal has its result or error."""

    DONE = "done"  # it has a result
    FAILED = "failed"  # it has an error, or a person gave it up
    IN_DOUBT = "in_doubt"  # it started, and its outcome was lost
    ANSWERED = "answered"  # it was not made: a person gave its result
    ASKED_AGAIN = (
        "asked_again"  # it did not start: something had changed since, and people were asked again
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """A call that ended, or fell into doubt, with the last `gate` that was opened for it."""

    gate: UUID
    frame: str
    call: str
    outcome: CallOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The facts of a proposed call that a policy judges, besides its CallInfo. `path` is as in ReviewSnapshot."""

    path: tuple[str, ...]
    args: Any
    requester: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether a call waits for people, and for how many seconds; None leaves the time to the tool.

    `extends_by` seconds follow that time, in which more people may decide.
    """

    gated: bool
    expires_in: float | None = None
    extends_by: float = 0.0


class NotConfirmed(Exception):
    """A decision differs from the signed one, or is not signed: the run is quarantined."""


class ApprovalVoid(Exception):
    """The approval is genuine but no longer valid: people are asked again.

    The reviewer has lost the right, or has steered the run since; or the risk of the call was raised.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedApproval:
    """A verified approval of a call: the people who gave it, and the comment they wrote with it, if any."""

    by: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementPart:
    """An addition to a statement of the engine: `INSERT … SELECT … FROM run`, empty if there is nothing to write.

    Its `parameters` have names that no other part uses. A violation of the constraint `overtaken` means that another
    transaction was faster: then the step is built again. A `required` part must return the row that it writes.
    """

    name: str
    sql: str
    parameters: dict[str, object]
    overtaken: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLink:
    """A request for a list: its id, and the sentence that describes the action to a reviewer."""

    id: UUID
    sentence: str


class ApprovalPort(Protocol):
    """Decides which calls need a person, and keeps their requests; implemented by approvals."""

    def judge(self, info: CallInfo, facts: PolicyFacts) -> Ruling:
        """Say whether this call waits for people. Policy may be stricter than the tool, never less strict."""

    def allow(self, snapshot: ReviewSnapshot, uses: Mapping[UUID, int]) -> Allowed | None:
        """Return the allowance that passes this call, None if people must be asked. This writes nothing.

        `uses` counts the uses of each allowance that the step takes already. `open` adds the use to the step.
        """

    def claim_query(self) -> Expression:
        """Return the JSON expression that a claim reads for `open`; `run` is the run's row."""

    def open(
        self,
        connection: psycopg.Connection[Any],
        snapshots: Sequence[ReviewSnapshot],
        *,
        origin: Collection[str],
        at: datetime | None = None,
        read: Any = None,
    ) -> tuple[StatementPart, ...]:
        """Return the rows for a step that opens these gates of one run: a request for each snapshot, and its audit.

        This writes nothing itself. `origin` are the people in the run's origin, as its row says. If `read`, the value
        of `claim_query`, is given, this reads nothing either, and the requests are made at `at`, in database time.
        """

    def outcomes(self, ended: Sequence[EndedCall], *, position: int) -> tuple[StatementPart, ...]:
        """Return the rows for a step at which these calls end. `position` is that of its entry, for their results."""

    def verify_decision(
        self, *, gate: UUID, decision: Decision, deadline: datetime | None = None
    ) -> bool:
        """Verify a received decision: raise NotConfirmed unless the web process signed exactly this one.

        A decision of the clock has no signature: it is the one that the request named for its expiry, and that is at
        the `deadline` of the journal if it is given. Return whether the run fails with it. Raises KeyMissing.
        """

    def read_extension(self, document: str) -> GateExtended:
        """Return a received extension of a deadline. Raises NotConfirmed unless a person signed it; KeyMissing."""

    def verify_approval(
        self,
        *,
        gate: UUID,
        action_digest: str,
        risk: Risk | None = None,
        origin: Collection[str] = (),
        reviewers: Collection[str] = (),
        decision: Decision | None = None,
    ) -> VerifiedApproval:
        """Verify and return an approval just before its call starts: exactly this action was approved, and still is.

        `risk` is that of the call now: an approval at a lower risk does not count. If the step also receives the
        `decision`, the same check verifies it. `origin` is the run's origin by its
        journal: an approval by one of these people does not count. That of the `reviewers`, who wrote to the run since
        or before, counts only if the request's rule lets reviewers write. Raises NotConfirmed, ApprovalVoid, or
        KeyMissing.
        """

    def find_version_decider(
        self,
        *,
        run: UUID,
        agent: str,
        before: str,
        after: str,
        requester: str,
        origin: Collection[str],
    ) -> str | None:
        """Return the admin whose decision lets runs of these people continue from one version to the other, or None.

        `requester` and `origin` are those of the run, by its journal. People who steered `run` since count too.
        """

    def find_schema(self, gate: UUID) -> dict[str, Any] | None:
        """Return the schema of the arguments as this gate's request shows it, None if it cannot be read.

        Only the action digest proves that it is the one that was shown.
        """

    def expire(self, gate: UUID) -> None:
        """Expire the gate in a transaction of its own, unless a person decided first."""

    def send_messages(self, stop: Event) -> None:
        """Begin to send the due messages to people and programs; several sweepers may at once."""

    def look_ahead(self, stop: Event) -> None:
        """Do the sweeper's part for pending requests until `stop`; several sweepers may at once.

        That is to record the steps of escalation that have begun, and to mark requests that too few people can decide.
        """

    def count_decisions(self) -> None:
        """Count the decisions of the newest days, for the overview; several sweepers may at once."""

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel the pending requests of these gates, inside the caller's transaction.

        `actor` cancels the run and is audited, even if no gate is open; None is the engine itself.
        """

    def join(self, *, run: UUID, person: str, reviewer: bool = False) -> None:
        """Exclude a person who steers the run from deciding in it, inside the caller's transaction.

        A `reviewer` is not excluded from the requests so far whose rule lets reviewers write.
        """

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        """Write the audit row of an action on a run, inside the caller's transaction."""

    def erase(self, *, run: UUID, at: datetime, head: str) -> None:
        """Erase the request contents of a run that has ended, in the caller's transaction.

        Decisions, digests and signatures stay. The audit row contains `head`, the MAC of the journal's last entry.
        """

    def collect_evidence(self, run: UUID) -> dict[str, Any]:
        """Return the requests of a run, with their decisions and audit rows, as JSON for the archive."""

    def find_use_problem(self, gate: UUID, use: AllowanceUse) -> str | None:
        """Say why the stored use of an allowance does not verify; None if it does. Raises KeyMissing."""

    def find_prompt_problem(self, name: str, number: int, digest: str) -> str | None:
        """Say why a version of a prompt is not the signed text with this digest; None if it is. Raises KeyMissing."""

    def is_held(self, run: UUID) -> bool:
        """Tell by the audit whether a run is under a legal hold; also if the rows that lift it do not verify.

        Raises KeyMissing.
        """

    def was_imported(self, run: UUID) -> bool:
        """Tell whether the run, or one that it is a fork of, came from another installation."""

    def find_audit_problem(self, run: UUID) -> str | None:
        """Describe the first problem with the run's audit rows; None if they verify. Raises KeyMissing."""

    def map_requests(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """Return the approval request of each gate that has one, by gate."""

    def count_verdicts(self, runs: Sequence[UUID]) -> Mapping[str, int]:
        """Count the calls of these runs on which a person decided: `approved`, with changes too, and `denied`."""

    def map_links(self, gates: Sequence[UUID]) -> dict[UUID, RequestLink]:
        """Return the request of each gate with its sentence, which names a row that does not verify."""
