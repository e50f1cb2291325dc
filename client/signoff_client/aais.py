"""Requests and their decisions as envelopes of AAIS 1.0, the Agent Approval Interchange Specification.

It has no edited arguments: an approval with edits is the cancelled request and another one that was approved.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import rfc8785

from signoff_client.errors import SignoffError
from signoff_client.routes import Approval

Envelope = dict[str, Any]

_CHOICES = [
    {"decision": decision, "scope": "once", "label": label}
    for decision, label in (("approve", "Approve"), ("deny", "Deny"), ("cancel", "Cancel"))
]
# Of each status: the decision, the outcome and the message. A call that is not made as it was asked is cancelled.
_ENDS: dict[str, tuple[str | None, str, str]] = {
    "approved": ("approve", "approved", "The call may be made."),
    "denied": ("deny", "denied", "The call is not made."),
    "answered": ("cancel", "cancelled", "A person gave the result, and the call is not made."),
    "edited": ("cancel", "cancelled", "A person approved other arguments, as another request."),
    "expired": (None, "expired", "No person decided in time."),
    "cancelled": (None, "cancelled", "The run closed the request."),
}
_REDACTED = "••••"


def build_envelopes(approval: Approval) -> list[Envelope]:
    """Return the envelopes in order. Those of a decision come when it can no longer be undone.

    Raise SignoffError if the stored request does not verify, or if retention removed its arguments.
    """
    if approval.tampered or approval.removed_at:
        problem = "does not verify" if approval.tampered else "has no arguments any more"
        raise SignoffError(f"request {approval.id} {problem}, so there is no envelope of it")
    first = _build_request(approval, str(approval.id), approval.args, approval.created_at)
    envelopes = [first]
    is_final = approval.effective_at is None or approval.effective_at <= datetime.now(UTC)
    if approval.decided_at is not None and is_final:
        if approval.edited is None:
            envelopes += _build_end(approval, first, approval.status)
        else:
            name = f"{approval.id}:edited"
            second = _build_request(approval, name, approval.edited, approval.decided_at)
            envelopes += _build_end(approval, first, "edited")
            envelopes += [second, *_build_end(approval, second, "approved")]
    stream = {"stream": f"signoff:{approval.id}"}
    return [
        {"aais": "1.0", **envelope, **stream, "sequence": number}
        for number, envelope in enumerate(envelopes)
    ]


def _build_request(approval: Approval, name: str, args: Any, at: datetime) -> Envelope:
    arguments = args if isinstance(args, dict) else {"value": args}
    action: dict[str, Any] = {
        "kind": "tool_call" if approval.tool else approval.kind,
        "name": _make_identifier(approval.tool or approval.kind),
        "summary": approval.sentence[:1000] or approval.kind,
        "arguments": arguments,
    }
    if _REDACTED in arguments.values():
        action["presentation"] = {"redacted": True, "binding_hint": approval.digest}
    request = {
        "id": name,
        "created_at": at.isoformat(),
        "status": "pending",
        "origin": {
            "harness": "signoff",
            "session_id": str(approval.run),
            "run_id": str(approval.run),
            **({"agent_id": _make_identifier(approval.path[-1])} if approval.path else {}),
        },
        "action": action,
        "action_digest": "sha256:" + hashlib.sha256(rfc8785.dumps(action)).hexdigest(),
        "risk": {
            "level": approval.risk,
            "reasons": [f"The tool is declared as {approval.risk} risk."],
        },
        "choices": _CHOICES,
        "extensions": {"signoff.local/digest": approval.digest},
    }
    if approval.expires_at is not None and approval.expires_at > at:
        request["expires_at"] = approval.expires_at.isoformat()
    return _build_envelope("requested", name, at, request=request)


def _build_end(approval: Approval, requested: Envelope, status: str) -> list[Envelope]:
    """Return the decision, if a person or an allowance made one, and the resolution."""
    assert approval.decided_at is not None
    request, (decision, outcome, message) = requested["request"], _ENDS[status]
    bound = {"request_id": request["id"], "action_digest": request["action_digest"]}
    resolution = {
        "id": f"{request['id']}:resolution",
        **bound,
        "resolved_at": approval.decided_at.isoformat(),
        "outcome": outcome,
        "message": message,
    }
    envelopes = []
    if decision is not None and approval.decided_by is not None:
        person = {
            "id": _make_identifier(approval.decided_by),
            "type": "human" if approval.allowance is None else "policy",
            "display_name": approval.decided_by,
            "authenticated_by": "signoff",
        }
        decided = {
            "id": f"{request['id']}:decision",
            **bound,
            "decided_at": approval.decided_at.isoformat(),
            "decision": decision,
            "scope": "once",
            "actor": person,
        }
        envelopes.append(
            _build_envelope("decided", request["id"], approval.decided_at, decision=decided)
        )
        resolution["decision_id"] = decided["id"]
        if decision != "cancel":
            resolution["effective_scope"] = "once"
    resolved = _build_envelope(
        "resolved", request["id"], approval.decided_at, resolution=resolution
    )
    return [*envelopes, resolved]


def _build_envelope(kind: str, name: str, at: datetime, **payload: Any) -> Envelope:
    times = {"id": f"{name}:{kind}", "occurred_at": at.isoformat()}
    return {"type": f"approval.{kind}", **times, **payload}


def _make_identifier(text: str) -> str:
    """Return the text as an identifier of AAIS; other characters are replaced by their numbers."""
    name = re.sub(r"[^A-Za-z0-9.:_-]", lambda match: f"_{ord(match[0]):x}_", text)
    return (name if name[:1].isalnum() else f"x{name}")[:200]
