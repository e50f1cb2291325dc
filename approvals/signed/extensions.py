"""Signs extensions of a request's deadline in the web process, and verifies them where the deadline counts.

The digest of a request keeps the deadline with which it opened. So votes from before an extension stay valid: they are
about the same call. The row keeps each extension, and they lead from the first deadline to the present one.
"""

import json
from datetime import datetime

from pydantic import TypeAdapter

from approvals.models import Approval
from runtime.core.run.events import GateExtended
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Signature, Verifies, row_text
from runtime.ports.approvals import NotConfirmed

_KIND = "extension"  # no decision and no row is of it
_EVENT = TypeAdapter(GateExtended)


def sign(approval: Approval, *, until: datetime, by: str, reason: str) -> str:
    """Return the signed extension as JSON. Raises ImproperlyConfigured without the private key."""
    of_gate = {name: getattr(approval, name) for name in ("gate", "frame", "call")}
    values = {**of_gate, "by": by, "reason": reason, "before": approval.expires_at, "until": until}
    text = row_text(_KIND, values)
    signature = signatures.sign(purposes.DECISIONS, text)
    return json.dumps({"text": text, "hex": signature.hex, "key_id": signature.key_id})


def joined(approval: Approval, document: str) -> str:
    """Return the extensions of a request with this one, as its row keeps them."""
    return json.dumps([*json.loads(approval.extensions or "[]"), document])


def of_request(
    approval: Approval, verifies: Verifies = signatures.verify_signature
) -> tuple[GateExtended, ...]:
    """Return a request's extensions in their order. Raises NotConfirmed unless people signed them; KeyMissing."""
    try:
        documents = json.loads(approval.extensions or "[]")
        return tuple(read(document, verifies) for document in documents)
    except (ValueError, TypeError, RecursionError) as exc:
        raise NotConfirmed("the extensions cannot be read") from exc


def signed_texts(approval: Approval) -> tuple[tuple[str, Signature], ...]:
    """Return the text and the signature of each extension of a verified request."""
    return tuple(_signed_text(document) for document in json.loads(approval.extensions or "[]"))


def check(approval: Approval, verifies: Verifies = signatures.verify_signature) -> None:
    """Raise NotConfirmed unless people extended this request from its first deadline to the present one; KeyMissing."""
    deadline = approval.first_expires_at
    for extension in of_request(approval, verifies):
        if (extension.gate, extension.before) != (approval.gate, deadline):
            raise NotConfirmed("a stored extension is of another request or deadline")
        deadline = extension.until
    if deadline != approval.expires_at:
        raise NotConfirmed("the stored deadline differs from the signed one")


def read(document: str, verifies: Verifies = signatures.verify_signature) -> GateExtended:
    """Return a signed extension. Raises NotConfirmed unless a person signed it; KeyMissing."""
    try:
        text, signature = _signed_text(document)
        if verifies(purposes.DECISIONS, signature, text):
            values = json.loads(text)
            if values.pop("kind") == _KIND:
                return _EVENT.validate_python(values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise NotConfirmed("the extension cannot be read") from exc
    raise NotConfirmed("the extension differs from the signed one")


def _signed_text(document: str) -> tuple[str, Signature]:
    stored = json.loads(document)
    return stored["text"], Signature(hex=stored["hex"], key_id=stored["key_id"])
