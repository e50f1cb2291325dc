"""Signs hand-overs of requests, and verifies them when they are shown.

The note can lead its reader to approve, so a program with write access to the database must not be able to write one
under a person's name. The signature is that of decisions, over text that no decision, vote or comment has.
"""

from datetime import UTC

from approvals.models import Handover
from runtime.core.digest import canonical
from runtime.errors import KeyMissing
from runtime.keyring import purposes, signatures


def sign(row: Handover) -> None:
    """Sign a hand-over, without writing it. Raises ImproperlyConfigured without the private key."""
    signed = signatures.sign(purposes.DECISIONS, _text(row))
    row.signature, row.key_id = signed.hex, signed.key_id


def is_signed(row: Handover) -> bool:
    """Tell whether its person handed exactly this request over, with this note."""
    signed = signatures.Signature(hex=row.signature, key_id=row.key_id)
    try:
        return signatures.verify_signature(purposes.DECISIONS, signed, _text(row))
    except (KeyMissing, ValueError):  # a signature of another form, or none
        return False


def _text(row: Handover) -> str:
    return canonical(
        {
            "handed over": str(row.approval_id),
            "to": row.person,
            "by": row.by,
            "note": row.note,
            "at": row.at.astimezone(UTC).isoformat(),
        }
    ).decode()
