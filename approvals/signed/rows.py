"""Signs rows, and verifies them.

Only web and command line hold the private keys. So a token, a group or a comment that another program inserts into
Postgres counts for nothing. Ed25519 is RFC 8032.
"""

from approvals.models.signed import SignedRow
from runtime.errors import KeyMissing
from runtime.keyring import signatures
from runtime.keyring.row_text import row_text
from runtime.keyring.signatures import Signature, Verifies


def add(row: SignedRow) -> None:
    """Sign the row and insert it. Raise ImproperlyConfigured without the private key."""
    sign(row)
    row.save(force_insert=True)


def sign(row: SignedRow) -> None:
    """Put the signature into the row. Raise ImproperlyConfigured without the private key."""
    signature = signatures.sign(row.PURPOSE, text_of(row))
    row.signature, row.key_id = signature.hex, signature.key_id


def is_valid(row: SignedRow) -> bool:
    """Tell whether a key of the ring signed exactly this row."""
    try:
        return verify(row, text_of(row))
    except (KeyMissing, ValueError, TypeError, AttributeError):  # a value of another type
        return False


def is_signed(row: SignedRow, text: str) -> bool:
    """Tell whether a key of the ring signed this text of the row."""
    try:
        return verify(row, text)
    except (KeyMissing, ValueError, TypeError, AttributeError):
        return False


def verify(row: SignedRow, text: str, verifies: Verifies | None = None) -> bool:
    """Tell whether the key of the row signed this text of it. Raise KeyMissing for an unknown key."""
    verifies = verifies or signatures.verify_signature
    return verifies(row.PURPOSE, Signature(hex=row.signature, key_id=row.key_id), text)


def text_of(row: SignedRow) -> str:
    """Return the signed text of a row. Raise ValueError, TypeError or AttributeError for values of other types."""
    names = row.SIGNED_FIELDS
    if row.LATER_FIELDS:
        names += tuple(name for name in row.LATER_FIELDS if getattr(row, name) is not None)
    return row_text(row.KIND, {name: getattr(row, name) for name in names})
