"""Signs comments on requests, and verifies them when they are shown.

A comment can lead a reviewer to approve, so a program with write access to the database must not be able to write one
under a person's name. The signature is that of decisions, over text that no decision and no vote has.
"""

from datetime import UTC, datetime
from uuid import UUID

from approvals.models import Comment
from runtime.core.digest import canonical
from runtime.errors import KeyMissing
from runtime.keyring import purposes, signatures


def make(*, id: UUID, approval_id: UUID, person: str, text: str, at: datetime) -> Comment:
    """Sign a comment, without writing it. Raises ImproperlyConfigured without the private key."""
    signed = signatures.sign(purposes.DECISIONS, _text(id, approval_id, person, text, at))
    return Comment(
        id=id,
        approval_id=approval_id,
        person=person,
        text=text,
        at=at,
        signature=signed.hex,
        key_id=signed.key_id,
    )


def is_signed(comment: Comment) -> bool:
    """Tell whether its person wrote exactly this comment on this request."""
    signed = signatures.Signature(hex=comment.signature, key_id=comment.key_id)
    said = _text(comment.id, comment.approval_id, comment.person, comment.text, comment.at)
    try:
        return signatures.verify_signature(purposes.DECISIONS, signed, said)
    except (KeyMissing, ValueError):  # a signature of another form
        return False


def _text(id: UUID, approval_id: UUID, person: str, text: str, at: datetime) -> str:
    return canonical(
        {
            "comment": text,
            "id": str(id),
            "request": str(approval_id),
            "by": person,
            "at": at.astimezone(UTC).isoformat(),
        }
    ).decode()
