"""Signs statements of decisions in the web process, and verifies them in workers.

A statement binds a verdict and its reason to the digest of one request, one person and one time. Only the processes
that record decisions have the private key. With write access to the database alone, an attacker can neither make
nor change a statement. The signature is Ed25519 (RFC 8032) over canonical JSON (RFC 8785).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from approvals.models import Request
from runtime.core.digest import canonical, sha256_of
from runtime.core.enums import (
    VERDICTS,
    Decision,
    GateKind,
    Verdict,
)
from runtime.keyring import purposes, signatures
from runtime.ports.approvals import NotConfirmed

STATUS: Mapping[Verdict, Request.Status] = {
    Verdict.APPROVE: Request.Status.APPROVED,
    Verdict.RUN_AGAIN: Request.Status.APPROVED,
    Verdict.DENY: Request.Status.DENIED,
    Verdict.GIVE_UP: Request.Status.DENIED,
    Verdict.HAPPENED: Request.Status.ANSWERED,
    Verdict.CONTINUE: Request.Status.APPROVED,
    Verdict.STOP: Request.Status.DENIED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A decision to sign. `result` is the digest of the reported result, None without one."""

    request: UUID
    digest: str
    verdict: Verdict
    by: str
    reason: str
    result: str | None
    at: datetime
    effective_at: datetime | None = None
    undone: int = 0


def make(request: Request, decision: Decision, at: datetime, undone: int = 0) -> Statement:
    """Build the statement of this decision on this request, without signing it.

    `undone` is the number of earlier decisions on the request that were undone.
    """
    return Statement(
        request=request.id,
        digest=request.request_digest,
        verdict=decision.verdict,
        by=decision.by,
        reason=decision.reason,
        result=result_digest(decision),
        at=at,
        effective_at=request.effective_at,
        undone=undone,
    )


def sign(request: Request, statement: Statement) -> None:
    """Store the signed statement in the row. Raises ImproperlyConfigured without the private key."""
    text = _text(statement)
    signature = signatures.sign(purposes.DECISIONS, text)
    request.statement = text
    request.signature, request.key_id = signature.hex, signature.key_id


def read(request: Request) -> Statement:
    """Return the signed statement of this request.

    Raises NotConfirmed if there is none, if its signature does not verify or if the row differs from it; KeyMissing.
    """
    if request.statement is None or request.signature is None or request.key_id is None:
        raise NotConfirmed("the request has no signed decision")
    signature = signatures.Signature(hex=request.signature, key_id=request.key_id)
    if not signatures.verify_signature(purposes.DECISIONS, signature, request.statement):
        raise NotConfirmed("the statement differs from the signed one")
    said = _parse(request.statement)
    stored = (
        ("request", said.request, request.id),
        ("digest", said.digest, request.request_digest),
        ("decider", said.by, request.decided_by),
        ("reason", said.reason, request.reason),
        ("time", said.at, request.decided_at),
        ("effective time", said.effective_at, request.effective_at),
        ("status", STATUS[said.verdict], request.status),
    )
    for name, signed, written in stored:
        if signed != written:
            raise NotConfirmed(f"the stored {name} differs from the signed one")
    if said.verdict not in VERDICTS[GateKind(request.kind)]:
        raise NotConfirmed(f"a gate of kind {request.kind} has no verdict {said.verdict}")
    return said


def result_digest(decision: Decision) -> str | None:
    """Return the digest of the reported result, which may be null; None without a result."""
    nothing = decision.result is None and decision.verdict is not Verdict.HAPPENED
    return None if nothing else sha256_of(decision.result)


def _text(statement: Statement) -> str:
    return canonical(
        {
            "request": str(statement.request),
            "digest": statement.digest,
            "verdict": str(statement.verdict),
            "by": statement.by,
            "reason": statement.reason,
            "result": statement.result,
            "at": statement.at.astimezone(UTC).isoformat(),
            "effective_at": _moment(statement.effective_at),
            "undone": statement.undone,
        }
    ).decode()


def _parse(text: str) -> Statement:
    """Parse a statement. The caller has verified its signature."""
    said: dict[str, Any] = json.loads(text)
    effective = said.get("effective_at")  # older releases wrote neither this nor `undone`
    return Statement(
        request=UUID(said["request"]),
        digest=said["digest"],
        verdict=Verdict(said["verdict"]),
        by=said["by"],
        reason=said["reason"],
        result=said["result"],
        at=datetime.fromisoformat(said["at"]),
        effective_at=effective and datetime.fromisoformat(effective),
        undone=said.get("undone", 0),
    )


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
