"""Copies the requests of a run for the file that an auditor gets, verifies such a file, and erases requests.

A file is verified with public keys alone. The web signed each decision, so it verifies although other processes can
write journals and files. Each decision in the journal must be the signed one. The MACs of requests, and of the audit,
need the keys of the installation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F, Value
from django.db.models.functions import Concat

from approvals.models import Approval, ApprovalUse, Comment, Handover
from approvals.reads import review_times
from approvals.requests import snapshot, verification
from approvals.signed import audit, statements, votes
from approvals.signed import rows as signed_rows
from approvals.signed.audit import UNDONE
from runtime.core.run.events import GateDecided
from runtime.core.values.enums import Decision, Verdict
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import KeyMissing, Tampered
from runtime.keyring import purposes, sealing
from runtime.keyring.signatures import PublicKeys
from runtime.ports.approvals import NotConfirmed

# Each table with the column of the run, or of a request of the run. The names are those of columns.
_OF_RUN = {"approvals_approval": "run_id", "approvals_auditentry": "run_id"}
_OF_REQUEST = ("approvals_vote", "approvals_comment", "approvals_handover", "approvals_reviewtime")


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


def copy_rows(run: UUID) -> dict[str, Any]:
    """Return the rows of each table as JSON objects, and the schemas of the tools by digest."""
    rows = {
        table: _read_rows(
            f"SELECT to_jsonb(t)::text FROM {table} t WHERE {column} = %s ORDER BY t::text", run
        )
        for table, column in _OF_RUN.items()
    }
    for table in _OF_REQUEST:
        rows[table] = _read_rows(
            f"""
            SELECT to_jsonb(t)::text FROM {table} t
            WHERE approval_id IN (SELECT id FROM approvals_approval WHERE run_id = %s) ORDER BY t::text
            """,
            run,
        )
    rows["approvals_toolschema"] = _read_rows(
        """
        SELECT to_jsonb(t)::text FROM approvals_toolschema t
        WHERE digest IN (SELECT schema FROM approvals_approval WHERE run_id = %s) ORDER BY digest
        """,
        run,
    )
    return rows


def _read_rows(statement: str, run: UUID) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [run])
        return [json.loads(row) for (row,) in cursor.fetchall()]


def verify_rows(
    rows: Mapping[str, Any],
    run: UUID,
    decided: Sequence[GateDecided],
    contents: Mapping[str, str],
    keys: PublicKeys,
) -> VerifiedEvidence:
    """Verify the rows that `copy_rows` returned, and that the journal's decisions are those. Raises Tampered."""
    reader = _Reader(rows=rows, run=run, keys=keys)
    try:
        return reader.verify(decided, contents)
    except (NotConfirmed, KeyMissing, ValueError, LookupError, TypeError, AttributeError) as exc:
        raise Tampered(f"{reader.subject}: {exc}") from exc


def erase_requests(*, run: UUID, at: datetime, head: str) -> None:
    """Erase arguments and sentence of every request of the run, how it was read, and comments.

    Decisions and digests stay. This is audited in the caller's transaction, with `head`.
    """
    audit.lock_runs(run)
    review_times.erase(run)
    for texts in (Comment, Handover):
        texts.objects.filter(approval__run=run).delete()
    ApprovalUse.objects.filter(run=run, note__isnull=False).update(note=None)
    approvals = Approval.objects.filter(run=run, removed_at=None)
    approvals.filter(edited__isnull=False).update(edited="{}")
    approvals.update(
        args="{}",
        preview=None,
        edited_preview=None,
        sentence=Concat(F("tool"), Value(" (removed under retention)")),
        removed_at=at,
    )
    audit.append(
        run=run,
        actor=None,
        act="removed",
        subject=f"run {run}",
        detail={"head": head},
        at=at,
    )


class _Reader:
    """Reads the rows one by one, and counts. `subject` is the one that is read."""

    def __init__(self, *, rows: Mapping[str, Any], run: UUID, keys: PublicKeys) -> None:
        self.subject = "the requests"
        self._rows, self._run, self._keys = rows, run, keys
        self._approvals: dict[UUID, Approval] = {}
        self._statements: dict[UUID, statements.Statement] = {}
        self._counts: dict[str, int] = {}

    def verify(
        self, decided: Sequence[GateDecided], contents: Mapping[str, str]
    ) -> VerifiedEvidence:
        for row in self._rows["approvals_approval"]:
            self.subject = audit.name_subject(row["id"])
            approval = signed_rows.decode_approval(row)
            if approval.run_id != self._run or approval.gate in self._approvals:
                raise NotConfirmed("it belongs to another run, or its gate has two requests")
            self._approvals[approval.gate] = approval
            self._read(approval)
            self._count("requests")
        for event in decided:
            self.subject = f"the decision of gate {event.gate}"
            self._compare(event, contents)
        self.subject = "the audit"
        numbers = [row["seq"] for row in self._rows["approvals_auditentry"]]
        if sorted(numbers) != list(range(1, len(numbers) + 1)):
            raise NotConfirmed("rows are missing")
        return VerifiedEvidence(audit=len(numbers), **self._counts)

    def _read(self, approval: Approval) -> None:
        if not verification.is_erased(approval):
            snapshot.check_digests(approval)
        if approval.first_expires_at is not None and purposes.DECISIONS in self._keys.keys:
            statements.check_extensions(approval, self._keys.verify)
        if approval.allowance is not None:
            # Whether it covers sealed arguments only the installation can tell.
            is_sealed = sealing.has_sealed_mark(verification.decode_arguments(approval))
            if purposes.RIGHTS not in self._keys.keys or is_sealed:
                self._count("unverified")
            else:
                verification.check_allowed(approval, self._keys.verify)
                self._count("allowed")
        elif approval.status not in verification.SIGNED:
            return
        elif purposes.DECISIONS not in self._keys.keys:
            self._count("unverified")
        else:
            self._statements[approval.gate] = self._statement(approval)
            self._count("decisions")

    def _statement(self, approval: Approval) -> statements.Statement:
        statement = statements.read(approval, self._keys.verify)
        verification.check_edited(approval, statement)
        if approval.expires_at is not None and statement.at >= approval.expires_at:
            raise NotConfirmed("it had expired when it was decided")
        for person in (statement.by, statement.absent):
            if person in (approval.requester, *approval.origin):
                raise NotConfirmed(f"{person}, who decided, is in the run's origin")
        if statement.undone != self._acts(audit.name_subject(approval.id), only=UNDONE):
            raise NotConfirmed("the decision was undone")
        values = [
            [
                *(row[name] for name in ("person", "for_person", "stage", "reason", "at")),
                *(row[name] for name in ("verdict", "signature", "key_id")),
                self._acts(votes.name_vote_subject(approval, row["person"]), without=votes.VOTED),
                None,
                row.get("authenticated"),  # files of earlier releases lack it
            ]
            for row in self._rows["approvals_vote"]
            if row["approval_id"] == str(approval.id)
        ]
        cast = votes.read(approval, json.dumps(values), self._keys.verify)
        counted = votes.check_counted(approval, statement, cast)
        self._count("votes", len(counted))
        return statement

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
            # The request expired, and an answer is the one that its policy names.
            if approval.status != Approval.Status.EXPIRED or approval.kind not in BEFORE_CALL:
                raise NotConfirmed(f"its request of kind {approval.kind} is {approval.status}")
            demands = votes.read_demands(approval)
            answer = None if demands is None else demands.answer
            allowed = {Verdict.EXPIRE: None, Verdict.ANSWER: answer}
            if decision.verdict not in allowed or decision.result != allowed[decision.verdict]:
                raise NotConfirmed("it is not what follows from the expiry")
            if decision.by or decision.reason != approval.reason:
                raise NotConfirmed("it differs from the recorded expiry")
            self._count("expired")
        elif approval.status not in verification.SIGNED:
            raise NotConfirmed(f"its request is {approval.status}")
        elif (statement := self._statements.get(event.gate)) is not None:
            if not statement.is_of(decision):
                raise NotConfirmed("it differs from the signed one")
            if event.edit is not None:
                snapshot.check_edit(approval, event.edit.args, statement.result)

    def _count(self, name: str, number: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + number
