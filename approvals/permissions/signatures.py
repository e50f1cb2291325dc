"""Signs the rows that give rights, and verifies them.

Only web and command line hold `rights.private`. So a token or a group that another program inserts into Postgres gives
no right. Ed25519 is RFC 8032, the canonical JSON RFC 8785.
"""

from datetime import UTC, datetime
from typing import Any

from approvals.models import (
    Absence,
    AllowanceAct,
    Assignment,
    PasswordLink,
    PolicyAct,
    PromptAct,
    Token,
    VersionDecision,
    VersionWithdrawal,
)
from runtime.core.digest import canonical
from runtime.errors import KeyMissing
from runtime.keyring import purposes, signatures

Signed = (
    Token
    | Assignment
    | PolicyAct
    | PromptAct
    | AllowanceAct
    | VersionDecision
    | VersionWithdrawal
    | Absence
    | PasswordLink
)


def sign(row: Signed) -> None:
    """Put the signature into the row. Raise ImproperlyConfigured without the private key."""
    signature = signatures.sign(purposes.RIGHTS, text_of(row))
    row.signature, row.key_id = signature.hex, signature.key_id


def is_valid(row: Signed) -> bool:
    """Tell whether a key of the ring signed exactly this row."""
    try:
        return is_signed(row, text_of(row))
    except (ValueError, TypeError, AttributeError):  # a value of another type
        return False


def is_signed(row: Signed, text: str) -> bool:
    """Tell whether a key of the ring signed this text of the row."""
    if row.signature is None or row.key_id is None:  # the use of an allowance
        return False
    signature = signatures.Signature(hex=row.signature, key_id=row.key_id)
    try:
        return signatures.verify_signature(purposes.RIGHTS, signature, text)
    except (KeyMissing, ValueError, TypeError, AttributeError):  # a value of another type
        return False


def text_of(row: Signed) -> str:
    """Return the signed text of a row. Raise ValueError, TypeError or AttributeError for values of other types."""
    match row:
        case Token():
            said = _token(row)
        case Assignment():
            said = _assignment(row)
        case PolicyAct():
            said = _policy_act(row)
        case PromptAct():
            said = _prompt_act(row)
        case AllowanceAct():
            said = _allowance_act(row)
        case VersionDecision():
            said = _version_decision(row)
        case VersionWithdrawal():
            said = _version_withdrawal(row)
        case Absence():
            said = _absence(row)
        case PasswordLink():
            said = _password_link(row)
    return canonical(said).decode()


def _token(row: Token) -> dict[str, Any]:
    return {
        "kind": "token",
        "public_id": row.public_id,
        "owner": row.owner_id,
        "secret_hash": row.secret_hash,
        "scopes": row.scopes,
        "created_at": _moment(row.created_at),
        "name": row.name,
        "expires_at": None if row.expires_at is None else _moment(row.expires_at),
    }


def _assignment(row: Assignment) -> dict[str, Any]:
    return {
        "kind": "assignment",
        "person": row.person_id,
        "username": row.username,
        "what": row.what,
        "seq": row.seq,
        "act": row.act,
        "by": row.by,
        "at": _moment(row.at),
        "givers": row.givers,
        "given_at": _moment(row.given_at),
        "needs_second": row.needs_second,
        "confirmed_by": row.confirmed_by,
        "confirmed_at": None if row.confirmed_at is None else _moment(row.confirmed_at),
        "digest": row.digest,
    }


def _policy_act(row: PolicyAct) -> dict[str, Any]:
    return {
        "kind": "policy",
        "seq": row.seq,
        "act": row.act,
        "number": row.number,
        "text": row.text,
        "by": row.by,
        "at": _moment(row.at),
        "effective_at": None if row.effective_at is None else _moment(row.effective_at),
    }


def _prompt_act(row: PromptAct) -> dict[str, Any]:
    return {
        "kind": "prompt",
        "name": row.name,
        "seq": row.seq,
        "act": row.act,
        "number": row.number,
        "text": row.text,
        "note": row.note,
        "label": row.label,
        "by": row.by,
        "token": row.token,
        "at": _moment(row.at),
        "effective_at": None if row.effective_at is None else _moment(row.effective_at),
    }


def _allowance_act(row: AllowanceAct) -> dict[str, Any]:
    return {
        "kind": "allowance",
        "allowance": str(row.allowance),
        "seq": row.seq,
        "act": row.act,
        "tool": row.tool,
        "ends_at": None if row.ends_at is None else _moment(row.ends_at),
        "terms": row.terms,
        "proposed_by": row.proposed_by,
        "by": row.by,
        "at": _moment(row.at),
        "reason": row.reason,
    }


def _version_decision(row: VersionDecision) -> dict[str, Any]:
    return {
        "kind": "version",
        "agent": row.agent,
        "before": row.before,
        "after": row.after,
        "by": row.by,
        "token": row.token,
        "reason": row.reason,
        "count": row.count,
        "at": _moment(row.at),
        "withdrawn": row.withdrawn,
    }


def _version_withdrawal(row: VersionWithdrawal) -> dict[str, Any]:
    return {
        "kind": "version withdrawal",
        "agent": row.agent,
        "before": row.before,
        "after": row.after,
        "by": row.by,
        "token": row.token,
        "reason": row.reason,
        "at": _moment(row.at),
    }


def _absence(row: Absence) -> dict[str, Any]:
    return {
        "kind": "absence",
        "username": row.username,
        "seq": row.seq,
        "act": row.act,
        "deputy": row.deputy,
        "starts": _moment(row.starts),
        "ends": _moment(row.ends),
        "by": row.by,
        "at": _moment(row.at),
    }


def _password_link(row: PasswordLink) -> dict[str, Any]:
    return {
        "kind": "password link",
        "public_id": row.public_id,
        "person": row.person_id,
        "secret_hash": row.secret_hash,
        "by": row.by,
        "created_at": _moment(row.created_at),
        "expires_at": _moment(row.expires_at),
    }


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
