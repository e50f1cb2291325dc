"""Signs statements of decisions in the web process, and verifies them in workers.

A statement binds a verdict and its reason to the digest of one request, one person and one time. Only the processes
that record decisions have the private key. With write access to the database alone, an attacker can neither make
nor change a statement. The signature is Ed25519 (RFC 8032) over canonical JSON (RFC 8785).

Extensions of a request's deadline are signed likewise. The digest of a request keeps the deadline with which it
opened. So votes from before an extension stay valid: they are about the same call. The row keeps each extension, and
they lead from the first deadline to the present one.
"""

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from approvals.models import Approval
from runtime.core.run.events import GateExtended
from runtime.core.values.enums import Decision, GateKind, Verdict
from runtime.core.values.json_values import encode_canonical, hash_value
from runtime.core.values.verdicts import VERDICTS, VERDICTS_AT
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Signature, Verifies, encode_row
from runtime.ports.approvals import NotConfirmed

_KIND = "extension"  # no decision and no row is of it
_EVENT = TypeAdapter(GateExtended)


def format_verdict(verdict: Verdict) -> str:
    """Return the text that only statements of this verdict contain: within other values quotation marks are escaped."""
    return f'"verdict":"{verdict}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A decision to sign.

    `result` is the digest of the reported or given result, or the action digest of the edited call, None without one.
    `consequences` is the digest of the preview of the edited call, None without one.
    `absent` is the person in whose place a deputy decided, None if `by` decided for themselves.
    `votes` are the digests of the votes that it counts, its decider's among them, where the policy demands several.
    `authenticated` says how `by` proved in the browser who they are, as in `Actor`; None for a token.
    """

    approval_id: UUID
    digest: str
    verdict: Verdict
    by: str
    reason: str
    result: str | None
    at: datetime
    effective_at: datetime | None = None
    undone: int = 0
    votes: tuple[str, ...] = ()
    absent: str | None = None
    consequences: str | None = None
    authenticated: Mapping[str, str] | None = None

    def is_of(self, decision: Decision) -> bool:
        """Say whether this statement signs exactly this decision."""
        return (self.verdict, self.by, self.reason, self.result, self.consequences) == (
            decision.verdict,
            decision.by,
            decision.reason,
            compute_result_digest(decision),
            compute_preview_digest(decision),
        )


def make(
    approval: Approval,
    decision: Decision,
    at: datetime,
    undone: int = 0,
    votes: Sequence[str] = (),
    authenticated: Mapping[str, str] | None = None,
) -> Statement:
    """Build the statement of this decision on this request, without signing it.

    `undone` is the number of earlier decisions on the request that were undone.
    """
    return Statement(
        approval_id=approval.id,
        digest=approval.approval_digest,
        verdict=decision.verdict,
        by=decision.by,
        reason=decision.reason,
        result=compute_result_digest(decision),
        at=at,
        effective_at=approval.effective_at,
        undone=undone,
        votes=tuple(votes),
        absent=approval.decided_for,
        consequences=compute_preview_digest(decision),
        authenticated=authenticated,
    )


def sign(approval: Approval, statement: Statement) -> None:
    """Store the signed statement in the row. Raises ImproperlyConfigured without the private key."""
    text = _encode_statement(statement)
    signature = signatures.sign(purposes.DECISIONS, text)
    # The row has these two values anyway. A quotation mark within a value is escaped.
    for name, value, _ in _list_row_values(approval):
        text = text.replace(f'"{name}":"{value}",', "", 1)
    approval.statement = text
    approval.signature, approval.key_id = _encode_base64(signature.hex), signature.key_id


def read(approval: Approval, verifies: Verifies = signatures.verify_signature) -> Statement:
    """Return the signed statement of this request.

    Raises NotConfirmed if there is none, if its signature does not verify or if the row differs from it; KeyMissing.
    """
    if approval.statement is None or approval.signature is None or approval.key_id is None:
        raise NotConfirmed("the request has no signed decision")
    signature = signatures.Signature(hex=_decode_base64(approval.signature), key_id=approval.key_id)
    text = restore_signed_text(approval)
    if not verifies(purposes.DECISIONS, signature, text):
        raise NotConfirmed("the statement differs from the signed one")
    statement = _parse(text)
    stored = (
        ("decider", statement.by, approval.decided_by),
        ("absent person", statement.absent, approval.decided_for),
        ("reason", statement.reason, approval.reason),
        ("time", statement.at, approval.decided_at),
        ("effective time", statement.effective_at, approval.effective_at),
        ("status", VERDICTS[statement.verdict].status, approval.status),
    )
    for name, signed, written in stored:
        if signed != written:
            raise NotConfirmed(f"the stored {name} differs from the signed one")
    if statement.verdict not in VERDICTS_AT[GateKind(approval.kind)]:
        raise NotConfirmed(f"a gate of kind {approval.kind} has no verdict {statement.verdict}")
    return statement


def restore_signed_text(approval: Approval) -> str:
    """Return the text that was signed, of the stored one, which leaves out two values of the row."""
    text = approval.statement or ""
    for name, value, after in _list_row_values(approval):
        text = text.replace(f'"{after}":', f'"{name}":"{value}","{after}":', 1)
    return text


def decode_signature(approval: Approval) -> str:
    """Return the signature of a decided request as hex. Raises NotConfirmed."""
    return _decode_base64(approval.signature or "")


def compute_result_digest(decision: Decision) -> str | None:
    """Return the digest of the result that a person reported or gave, which may be null, or of the edited action.

    None without either.
    """
    if decision.edit is not None:
        return decision.edit.digest
    has_result = VERDICTS[decision.verdict].carries == "result"
    nothing = decision.result is None and not has_result
    return None if nothing else hash_value(decision.result)


def compute_preview_digest(decision: Decision) -> str | None:
    """Return the digest of the preview with which a person edited the call, None without one."""
    preview = None if decision.edit is None else decision.edit.preview
    return None if preview is None else hash_value(preview.document)


def sign_extension(approval: Approval, *, until: datetime, by: str, reason: str) -> str:
    """Return the signed extension as JSON. Raises ImproperlyConfigured without the private key."""
    of_gate = {name: getattr(approval, name) for name in ("gate", "frame", "call")}
    values = {**of_gate, "by": by, "reason": reason, "before": approval.expires_at, "until": until}
    text = encode_row(_KIND, values)
    signature = signatures.sign(purposes.DECISIONS, text)
    return json.dumps({"text": text, "hex": signature.hex, "key_id": signature.key_id})


def append_extension(approval: Approval, document: str) -> str:
    """Return the extensions of a request with this one, as its row keeps them."""
    return json.dumps([*json.loads(approval.extensions or "[]"), document])


def read_extensions(
    approval: Approval, verifies: Verifies = signatures.verify_signature
) -> tuple[GateExtended, ...]:
    """Return a request's extensions in their order. Raises NotConfirmed unless people signed them; KeyMissing."""
    try:
        documents = json.loads(approval.extensions or "[]")
        return tuple(read_extension(document, verifies) for document in documents)
    except (ValueError, TypeError, RecursionError) as exc:
        raise NotConfirmed("the extensions cannot be read") from exc


def list_extension_texts(approval: Approval) -> tuple[tuple[str, Signature], ...]:
    """Return the text and the signature of each extension of a verified request."""
    return tuple(
        _decode_signed_text(document) for document in json.loads(approval.extensions or "[]")
    )


def check_extensions(approval: Approval, verifies: Verifies = signatures.verify_signature) -> None:
    """Raise NotConfirmed unless people extended this request from its first deadline to the present one; KeyMissing."""
    deadline = approval.first_expires_at
    for extension in read_extensions(approval, verifies):
        if (extension.gate, extension.before) != (approval.gate, deadline):
            raise NotConfirmed("a stored extension is of another request or deadline")
        deadline = extension.until
    if deadline != approval.expires_at:
        raise NotConfirmed("the stored deadline differs from the signed one")


def read_extension(document: str, verifies: Verifies = signatures.verify_signature) -> GateExtended:
    """Return a signed extension. Raises NotConfirmed unless a person signed it; KeyMissing."""
    try:
        text, signature = _decode_signed_text(document)
        if verifies(purposes.DECISIONS, signature, text):
            values = json.loads(text)
            if values.pop("kind") == _KIND:
                return _EVENT.validate_python(values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise NotConfirmed("the extension cannot be read") from exc
    raise NotConfirmed("the extension differs from the signed one")


def _encode_statement(statement: Statement) -> str:
    effective_at = statement.effective_at
    return encode_canonical(
        {
            "request": str(statement.approval_id),
            "digest": statement.digest,
            "verdict": str(statement.verdict),
            "by": statement.by,
            "reason": statement.reason,
            "result": statement.result,
            "at": statement.at.astimezone(UTC).isoformat(),
            "effective_at": effective_at and effective_at.astimezone(UTC).isoformat(),
            "undone": statement.undone,
            **({"votes": list(statement.votes)} if statement.votes else {}),
            **({"for": statement.absent} if statement.absent else {}),
            **({"consequences": statement.consequences} if statement.consequences else {}),
            **({"authenticated": statement.authenticated} if statement.authenticated else {}),
        }
    ).decode()


def _list_row_values(approval: Approval) -> tuple[tuple[str, object, str], ...]:
    """Return name and value of each, and the name that follows it."""
    return (
        ("digest", approval.approval_digest, "effective_at"),
        ("request", approval.id, "result"),
    )


def _encode_base64(signature: str) -> str:
    return b2a_base64(bytes.fromhex(signature), newline=False).decode()


def _decode_base64(signature: str) -> str:
    """Return the digits of a stored signature. Raises NotConfirmed unless it is written as `sign` does."""
    try:
        digits = a2b_base64(signature).hex()
    except ValueError:
        digits = ""
    if _encode_base64(digits) != signature:
        raise NotConfirmed("the signature of the statement cannot be read")
    return digits


def _parse(text: str) -> Statement:
    """Parse a statement. The caller has verified its signature."""
    fields: dict[str, Any] = json.loads(text)
    if "kind" in fields:  # a row, such as a vote, is signed with the same key
        raise NotConfirmed("the statement is no decision")
    effective = fields["effective_at"]
    return Statement(
        approval_id=UUID(fields["request"]),
        digest=fields["digest"],
        verdict=Verdict(fields["verdict"]),
        by=fields["by"],
        reason=fields["reason"],
        result=fields["result"],
        at=datetime.fromisoformat(fields["at"]),
        effective_at=effective and datetime.fromisoformat(effective),
        undone=fields["undone"],
        votes=tuple(fields.get("votes", ())),
        absent=fields.get("for"),
        consequences=fields.get("consequences"),
        authenticated=fields.get("authenticated"),
    )


def _decode_signed_text(document: str) -> tuple[str, Signature]:
    stored = json.loads(document)
    return stored["text"], Signature(hex=stored["hex"], key_id=stored["key_id"])
