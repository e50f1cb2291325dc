"""Verifies the requests and decisions in the file of an archived run with public keys alone.

The web signed each decision, so it verifies although other processes can write journals and files. Each decision in the
journal must be the signed one. The MACs of requests, and of the audit, need the keys of the installation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.models import Approval, approval_rows
from approvals.requests import snapshot, verification
from approvals.signed import statements, votes
from approvals.signed.audit import UNDONE
from approvals.signed.statements import Statement
from runtime.core.run.events import GateDecided
from runtime.core.values.enums import Decision, Verdict
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import KeyMissing, Tampered
from runtime.keyring import purposes, sealing
from runtime.keyring.signatures import PublicKeys
from runtime.ports.approvals import NotConfirmed

_SIGNED = (Approval.Status.APPROVED, Approval.Status.DENIED, Approval.Status.ANSWERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvidence:
    """How many requests and audit rows were read, and how many decisions, votes and allowances verified.

    `unverified` counts the decisions and allowances without a given key, `expired` the decisions of the clock.
    """

    requests: int = 0
    audit: int = 0
    decisions: int = 0
    votes: int = 0
    allowed: int = 0
    expired: int = 0
    unverified: int = 0


def verify(
    rows: Mapping[str, Any],
    run: UUID,
    decided: Sequence[GateDecided],
    contents: Mapping[str, str],
    keys: PublicKeys,
) -> VerifiedEvidence:
    """Verify the rows that `evidence.of` returned, and that the journal's decisions are those. Raises Tampered."""
    reader = _Reader(rows=rows, run=run, keys=keys)
    try:
        return reader.verify(decided, contents)
    except (NotConfirmed, KeyMissing, ValueError, LookupError, TypeError, AttributeError) as exc:
        raise Tampered(f"{reader.subject}: {exc}") from exc


class _Reader:
    """Reads the rows one by one, and counts. `subject` is the one that is read."""

    def __init__(self, *, rows: Mapping[str, Any], run: UUID, keys: PublicKeys) -> None:
        self.subject = "the requests"
        self._rows, self._run, self._keys = rows, run, keys
        self._approvals: dict[UUID, Approval] = {}
        self._said: dict[UUID, Statement] = {}
        self._counts: dict[str, int] = {}

    def verify(
        self, decided: Sequence[GateDecided], contents: Mapping[str, str]
    ) -> VerifiedEvidence:
        for row in self._rows["approvals_approval"]:
            self.subject = f"request {row['id']}"
            approval = approval_rows.from_json(row)
            if approval.run_id != self._run or approval.gate in self._approvals:
                raise NotConfirmed("it belongs to another run, or its gate has two requests")
            self._approvals[approval.gate] = approval
            self._read(approval)
            self._count("requests")
        for event in decided:
            self.subject = f"the decision of gate {event.gate}"
            self._compare(event, contents)
        self.subject = "the audit"
        audit = [row["seq"] for row in self._rows["approvals_auditentry"]]
        if sorted(audit) != list(range(1, len(audit) + 1)):
            raise NotConfirmed("rows are missing")
        return VerifiedEvidence(audit=len(audit), **self._counts)

    def _read(self, approval: Approval) -> None:
        if not verification.is_erased(approval):
            snapshot.check_digests(approval)
        if approval.allowance is not None:
            self._read_allowed(approval)
        elif approval.status not in _SIGNED:
            return
        elif purposes.DECISIONS not in self._keys.keys:
            self._count("unverified")
        else:
            self._said[approval.gate] = self._statement(approval)
            self._count("decisions")

    def _read_allowed(self, approval: Approval) -> None:
        """Verify the signed allowance. Whether it covers sealed arguments only the installation can tell."""
        is_sealed = sealing.looks_sealed(verification.arguments(approval))
        if purposes.RIGHTS not in self._keys.keys or is_sealed:
            self._count("unverified")
            return
        verification.check_allowed(approval, self._keys.verify)
        self._count("allowed")

    def _statement(self, approval: Approval) -> Statement:
        said = statements.read(approval, self._keys.verify)
        verification.check_edited(approval, said)
        if approval.expires_at is not None and said.at >= approval.expires_at:
            raise NotConfirmed("it had expired when it was decided")
        for person in (said.by, said.absent):
            if person in (approval.requester, *approval.origin):
                raise NotConfirmed(f"{person}, who decided, is in the run's origin")
        if said.undone != self._acts(f"request {approval.id}", only=UNDONE):
            raise NotConfirmed("the decision was undone")
        counted = votes.check_counted(approval, said, self._votes(approval))
        self._count("votes", len(counted))
        return said

    def _votes(self, approval: Approval) -> tuple[votes.Cast, ...]:
        found = [
            [
                *(row[name] for name in ("person", "for_person", "stage", "reason", "at")),
                *(row[name] for name in ("verdict", "signature", "key_id")),
                self._acts(votes.subject(approval, row["person"]), without=votes.VOTED),
                None,
            ]
            for row in self._rows["approvals_vote"]
            if row["approval_id"] == str(approval.id)
        ]
        return votes.read(approval, json.dumps(found), self._keys.verify)

    def _acts(self, subject: str, *, only: str = "", without: str = "") -> int:
        """Count the audit rows about this subject, with one act or without one."""
        acts = [r["act"] for r in self._rows["approvals_auditentry"] if r["subject"] == subject]
        return sum(act == only if only else act != without for act in acts)

    def _compare(self, event: GateDecided, contents: Mapping[str, str]) -> None:
        """Raise NotConfirmed unless the decision in the journal is that of its request."""
        approval = self._approvals.get(event.gate)
        if approval is None:
            raise NotConfirmed("it has no request")
        result = event.result if event.stored is None else json.loads(contents[event.stored.digest])
        decision = Decision(
            verdict=event.verdict, by=event.by, reason=event.reason, result=result, edit=event.edit
        )
        if event.allowance is not None:
            use, verdict = (event.allowance.id, event.allowance.number), Verdict.APPROVE
            if (use, verdict) != ((approval.allowance, approval.allowance_use), event.verdict):
                raise NotConfirmed("its request names another allowance")
        elif not event.by or event.verdict is Verdict.EXPIRE:
            _check_expired(approval, decision)
            self._count("expired")
        elif approval.status not in _SIGNED:
            raise NotConfirmed(f"its request is {approval.status}")
        elif (said := self._said.get(event.gate)) is not None:
            if not said.is_of(decision):
                raise NotConfirmed("it differs from the signed one")
            if event.edit is not None:
                snapshot.check_edit(approval, event.edit.args, said.result)

    def _count(self, name: str, number: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + number


def _check_expired(approval: Approval, decision: Decision) -> None:
    """Raise NotConfirmed unless the request expired, and an answer is the one that its policy names."""
    if approval.status != Approval.Status.EXPIRED or approval.kind not in BEFORE_CALL:
        raise NotConfirmed(f"its request of kind {approval.kind} is {approval.status}")
    demands = votes.demands(approval)
    answer = None if demands is None else demands.answer
    allowed = {Verdict.EXPIRE: None, Verdict.ANSWER: answer}
    if decision.verdict not in allowed or decision.result != allowed[decision.verdict]:
        raise NotConfirmed("it is not what follows from the expiry")
    if decision.by or decision.reason != approval.reason:
        raise NotConfirmed("it differs from the recorded expiry")
