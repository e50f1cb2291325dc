"""Implements the engine's approvals port: opens requests at gates, and closes, links and audits them."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from threading import Event
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q
from django.db.models.expressions import RawSQL

from approvals import clock
from approvals.decisions import commit, open_requests
from approvals.errors import BrokenChain
from approvals.governance import (
    allowance_uses,
    policies,
    prompt_versions,
    subscriptions,
    version_changes,
)
from approvals.models import OF_CALL, Approval
from approvals.outbox import messages
from approvals.people import instances
from approvals.port import evidence, jobs, verifier
from approvals.reads import pending_ages
from approvals.reads.approval_views import to_view
from approvals.rights import approval_rights
from approvals.rules.judge import Facts
from approvals.signed import audit, statements
from runtime.core.run.events import AllowanceUse, GateExtended
from runtime.core.values.enums import Decision, Risk
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports import approvals
from runtime.ports.access import Actor, Expression
from runtime.ports.agents import CallInfo
from runtime.store import pool


class ApprovalService:
    """Selects the calls that need approval, and stores and verifies their requests."""

    def __init__(self) -> None:
        self._outlooks = jobs.Outlooks()

    @cached_property
    def _sender(self) -> messages.Sender:
        """The sender of the outbox. Only a sweeper sends, and loads what notices need."""
        from approvals.notices import due, slack_posts

        return messages.Sender(
            {
                instances.RESOLVED: open_requests.ResolvedRequests(),
                **subscriptions.KINDS,
                **due.KINDS,
                **slack_posts.KINDS,
            }
        )

    def judge(self, info: CallInfo, facts: approvals.PolicyFacts) -> approvals.Ruling:
        """Evaluate the call by the policy in force. Raises PolicyBroken: then the engine opens a hold."""
        _, judgement = policies.judge(
            Facts(
                tool=info.tool,
                path=facts.path,
                args=facts.args,
                risk=info.risk,
                gated=info.gated,
                effect=str(info.effect),
                requester=facts.requester,
            )
        )
        return approvals.Ruling(
            gated=judgement.approval,
            expires_in=judgement.expires_after,
            extends_by=judgement.extends_by,
        )

    def allow(
        self, snapshot: approvals.ReviewSnapshot, uses: Mapping[UUID, int]
    ) -> approvals.Allowed | None:
        """Return the allowance that passes this call, None if people must be asked."""
        return allowance_uses.allow(snapshot, uses)

    def claim_query(self) -> Expression:
        """Return the query for the last row of the run's audit chain."""
        return audit.LAST_OF_CLAIM

    def open(
        self,
        connection: pool.Connection,
        snapshots: Sequence[approvals.ReviewSnapshot],
        *,
        origin: Collection[str],
        at: datetime | None = None,
        read: Any = None,
    ) -> tuple[approvals.StatementPart, ...]:
        """Build a request for each snapshot, as parts of the step that opens their gates."""
        if at is None or read is None:
            at, last = open_requests.read_last_audit_row(connection, snapshots[0].run)
        else:
            last = audit.Last(seq=read[0], hash=read[1])
        return open_requests.build(snapshots, origin, at=at, last=last)

    def outcomes(
        self, ended: Sequence[approvals.EndedCall], *, position: int
    ) -> tuple[approvals.StatementPart, ...]:
        """Build the rows of calls that end, as a part of their step."""
        return (open_requests.record_outcomes(ended, position=position),)

    def verify_decision(
        self, *, gate: UUID, decision: Decision, deadline: datetime | None = None
    ) -> bool:
        """Verify a received decision. Return whether it is an expiry with which the run fails."""
        return verifier.verify_decision(gate=gate, decision=decision, deadline=deadline)

    def read_extension(self, document: str) -> GateExtended:
        """Verify a received extension of a deadline."""
        return statements.read_extension(document)

    def verify_approval(
        self,
        *,
        gate: UUID,
        action_digest: str,
        risk: Risk | None = None,
        origin: Collection[str] = (),
        reviewers: Collection[str] = (),
        decision: Decision | None = None,
    ) -> approvals.VerifiedApproval:
        """Verify and return an approval just before its call starts."""
        return verifier.verify_approval(
            gate=gate,
            action_digest=action_digest,
            risk=risk,
            origin=origin,
            reviewers=reviewers,
            decision=decision,
        )

    def find_schema(self, gate: UUID) -> dict[str, Any] | None:
        """Return the schema of the arguments in the request at this gate, None if it is missing or unreadable."""
        with pool.join_transaction() as connection:
            row = pool.fetch_row(connection, _SCHEMA, {"gate": gate})
        with suppress(ValueError, RecursionError):
            schema = json.loads(row[0] if row else "")
            return schema if isinstance(schema, dict) else None
        return None

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
        """Return the admin whose signed decision on these versions counts for a run of these people, or None."""
        return version_changes.find_decider(
            run=run, agent=agent, before=before, after=after, requester=requester, origin=origin
        )

    def expire(self, gate: UUID) -> None:
        """Expire the gate's request in a transaction. Does nothing before its deadline or if it is closed."""
        run = Approval.objects.filter(gate=gate).values_list("run", flat=True).first()
        if run is None:
            return
        with suppress(GateNotOpen, RunEnded), transaction.atomic():  # closed without a decision
            audit.lock_runs(run)
            approval, at = Approval.objects.get(gate=gate), clock.read_time()
            if commit.is_expired(approval, at):
                commit.expire(approval, at)

    def send_messages(self, stop: Event) -> None:
        """Begin to send the due messages to people and programs."""
        self._sender.send_due(stop)

    def look_ahead(self, stop: Event) -> None:
        """Record the steps of escalation that have begun, and mark requests that too few people can decide."""
        try:
            jobs.record_escalations(stop)
        finally:
            self._outlooks.mark(stop)

    def count_decisions(self) -> None:
        """Count the decisions of the newest days."""
        pending_ages.count()

    def close(self, *, run: UUID, gates: Sequence[UUID], actor: Actor | None, reason: str) -> None:
        """Cancel the pending requests at these gates, inside the caller's transaction."""
        audit.lock_runs(run)
        at = clock.read_time()
        pending = Approval.objects.filter(
            Q(status=Approval.Status.PENDING) | Q(effective_at__gt=at), run=run, gate__in=gates
        ).order_by("created_at", "id")
        for approval in pending:
            commit.cancel(approval, actor=actor, at=at, reason=reason)
        if actor is not None:
            audit.append(
                run=run,
                actor=actor,
                act="cancelled",
                subject=f"run {run}",
                detail={"reason": reason},
                at=at,
            )
            messages.wake(subject=str(run))

    def join(self, *, run: UUID, person: str, reviewer: bool = False) -> None:
        """Exclude a person who steers the run from deciding in it. The caller has locked the run's row."""
        rows = Approval.objects.filter(~Q(excluded__contains=[person]), run=run)
        if reviewer:
            rows = rows.exclude(pk__in=approval_rights.list_still_decidable(rows))
        # Decided requests too: a decision can be undone, and this person's own decisions no longer count.
        rows.update(excluded=RawSQL("excluded || to_jsonb(%s::text)", [person]))

    def record_audit(
        self, *, run: UUID, actor: Actor, act: str, detail: dict[str, str | None]
    ) -> None:
        """Record a user's act on a run in the audit, inside the caller's transaction."""
        audit.lock_runs(run)
        audit.append(
            run=run, actor=actor, act=act, subject=f"run {run}", detail=detail, at=clock.read_time()
        )

    def erase(self, *, run: UUID, at: datetime, head: str) -> None:
        """Erase the request contents of a run that has ended, in the caller's transaction."""
        evidence.erase_requests(run=run, at=at, head=head)

    def collect_evidence(self, run: UUID) -> dict[str, Any]:
        """Return the requests of a run, with their decisions and audit rows, as JSON for the archive."""
        return evidence.copy_rows(run)

    def find_use_problem(self, gate: UUID, use: AllowanceUse) -> str | None:
        """Say why the stored use of an allowance does not verify; None if it does."""
        return allowance_uses.find_use_fault(gate, use)

    def find_prompt_problem(self, name: str, number: int, digest: str) -> str | None:
        """Say why a version of a prompt is not the signed text with this digest; None if it is."""
        return prompt_versions.find_text_fault(name, number, digest)

    def is_held(self, run: UUID) -> bool:
        """Tell by the audit whether a run is under a legal hold; also if the rows that lift it do not verify."""
        act = audit.find_last_act(run, (approvals.HELD, approvals.HOLD_LIFTED))
        return act == approvals.HELD or (
            act is not None and self.find_audit_problem(run) is not None
        )

    def was_imported(self, run: UUID) -> bool:
        """Tell whether the run, or one that it is a fork of, came from another installation."""
        return audit.was_imported(run)

    def find_audit_problem(self, run: UUID) -> str | None:
        """Name the first problem of the run's audit rows, None if they verify. Raises KeyMissing."""
        try:
            audit.verify(run)
        except BrokenChain as broken:
            return f"row {broken.seq} {broken.problem}"
        return None

    def map_requests(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """Return the request of each gate that has one, by gate."""
        return dict(Approval.objects.filter(gate__in=gates).values_list("gate", "id"))

    def count_verdicts(self, runs: Sequence[UUID]) -> Mapping[str, int]:
        """Count the calls of these runs on which a person decided: `approved`, with changes too, and `denied`."""
        decided = (Approval.Status.APPROVED, Approval.Status.DENIED)
        rows = Approval.objects.filter(OF_CALL, run__in=runs, status__in=decided)
        rows = rows.filter(decided_by__isnull=False)
        return dict(rows.values_list("status").annotate(number=Count("id")))

    def map_links(self, gates: Sequence[UUID]) -> dict[UUID, approvals.RequestLink]:
        """Return the request of each gate with its sentence, which names a row that does not verify."""
        views = [to_view(approval, None) for approval in Approval.objects.filter(gate__in=gates)]
        return {
            view.gate: approvals.RequestLink(id=view.id, sentence=view.sentence) for view in views
        }


_SCHEMA = """
    SELECT s.body FROM approvals_approval r
    JOIN approvals_toolschema s ON s.digest = r.schema WHERE r.gate = %(gate)s
"""
