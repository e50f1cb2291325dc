"""Builds the evidence of one decision: the signed text with its signature, for an auditor who has the public key."""

from typing import Any

from approvals.reads.approval_views import ApprovalView
from approvals.signed import statements
from runtime.keyring import files, purposes, signatures

_FACTS = (
    "id", "run", "kind", "tool", "path", "risk", "requester", "status", "created_at",
    "decided_by", "decided_for", "decided_at", "effective_at", "channel", "rule", "policy_version", "voted",
)  # fmt: skip


def read_evidence(approval: ApprovalView) -> dict[str, Any]:
    """Return the facts of a verified, signed decision, and what an auditor needs to verify it. Raises KeyMissing.

    The signed text has the digest of the request, which covers its arguments, and the digests of the votes.
    """
    key_id = str(approval.stored.key_id)
    text = statements.signed_text(approval.stored)
    return {
        "request": {name: getattr(approval, name) for name in _FACTS},
        "digest": approval.digest,
        "signed_bytes": signatures.labelled(purposes.DECISIONS, text).decode(),
        "algorithm": "Ed25519",
        "signature": statements.signature_of(approval.stored),
        "key": key_id,
        "public_key": files.key_of(purposes.DECISIONS, key_id).hex(),
    }
