"""Builds the evidence of one decision: the signed text with its signature, for an auditor who has the public key."""

from typing import Any

from approvals.reads.approval_views import ApprovalView
from approvals.signed import extensions, statements
from runtime.keyring import files, purposes, signatures
from runtime.keyring.signatures import Signature

_FACTS = (
    "id", "run", "kind", "tool", "path", "risk", "requester", "status", "created_at",
    "decided_by", "decided_for", "decided_at", "effective_at", "channel", "rule", "policy_version", "voted",
    "authenticated",
)  # fmt: skip


def read_evidence(approval: ApprovalView) -> dict[str, Any]:
    """Return the facts of a verified, signed decision, and what an auditor needs to verify it. Raises KeyMissing.

    The signed text has the digest of the request, which covers its arguments and its first deadline, and the digests of
    the votes. Each extension of the deadline is signed for itself.
    """
    row = approval.stored
    signature = Signature(hex=statements.signature_of(row), key_id=str(row.key_id))
    return {
        "request": {name: getattr(approval, name) for name in _FACTS},
        "digest": approval.digest,
        **_signed(statements.signed_text(row), signature),
        "extensions": [_signed(*signed) for signed in extensions.signed_texts(row)],
    }


def _signed(text: str, signature: Signature) -> dict[str, str]:
    return {
        "signed_bytes": signatures.labelled(purposes.DECISIONS, text).decode(),
        "algorithm": "Ed25519",
        "signature": signature.hex,
        "key": signature.key_id,
        "public_key": files.key_of(purposes.DECISIONS, signature.key_id).hex(),
    }
