"""Builds the stored snapshot of a call for review, computes its two digests, and makes and checks its MAC.

Tool schemas, each stored once: a request refers to that of its tool by its digest.

The digest is part of the action digest, so a reference binds the schema as the text does.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from approvals.models import Approval, ToolSchema
from approvals.rules import policy
from approvals.signed import rows as signed_rows
from approvals.signed import statements
from runtime.core.values import json_schema
from runtime.core.values.enums import EffectClass
from runtime.core.values.errors import NotJson
from runtime.core.values.ids import RANDOM_BITS, make_uuid7
from runtime.core.values.json_values import hash_action as digest_of_action
from runtime.core.values.json_values import hash_value
from runtime.core.values.limits import MAX_REPORTED
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import InvalidInput, require_json_input
from runtime.keyring import purposes, sealing, signatures
from runtime.ports.approvals import NotConfirmed, ReviewSnapshot, StatementPart

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

RECENT = 32  # actions whose digests a process remembers
_REFERENCE = "sha256:"  # no JSON text begins with it
RECENT_SCHEMAS = 256  # schemas that a process remembers
# `ORDER BY`, so that two steps that store the same new schemas do not wait for each other.
_STORE = """
    INSERT INTO approvals_toolschema (digest, body)
    SELECT s.digest, s.body FROM run, json_to_recordset(%(schemas)s::json) AS s(digest text, body text)
    ORDER BY s.digest ON CONFLICT (digest) DO NOTHING
"""
# The value of `result` when none was sent: null is a result.
ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the policy of this version says about a call: at least this risk, and its demands."""

    version: str = policy.POLICY_VERSION
    risk: str
    demands: policy.Demands | None = None


def build_request(
    snapshot: ReviewSnapshot, at: datetime, origin: Sequence[str] = (), judged: Judged | None = None
) -> Approval:
    """Build a pending request, asked at `at`, without writing it. `origin` lists the people in the run's origin."""
    judged = judged or Judged(risk=str(snapshot.risk))
    demands = judged.demands
    approval = signed_rows.make_approval(
        id=make_uuid7(at, secrets.randbits(RANDOM_BITS)),
        run_id=snapshot.run,
        gate=snapshot.gate,
        kind=str(snapshot.kind),
        frame=snapshot.frame,
        call=snapshot.call,
        tool=snapshot.tool,
        args=encode_value(snapshot.args),
        schema=compute_digest(encode_value(snapshot.schema)),
        result_schema=_encode_result_schema(snapshot),
        preview=None if snapshot.preview is None else encode_value(snapshot.preview),
        path=list(snapshot.path),
        effect=str(snapshot.effect),
        risk=judged.risk,
        sentence=snapshot.sentence,
        action_digest=snapshot.action_digest,
        nonce=secrets.token_urlsafe(16),
        policy_version=judged.version,
        rule=None if demands is None else demands.stored(),
        voted=[],
        voted_for=[],
        open_to=None if demands is None else list(demands.stages[0].keys),
        # A call in doubt has no deadline, so every reviewer may resolve it.
        readers=None
        if demands is None or demands.readers is None or snapshot.kind.is_in_doubt
        else list(demands.readers),
        requester=snapshot.requester,
        origin=list(origin),
        excluded=list(origin),
        created_at=at,
        expires_at=snapshot.expires_at,
        not_before=snapshot.not_before,
        revises=snapshot.revises,
        revision=snapshot.revision,
    )
    if snapshot.allowed is not None:
        use = snapshot.allowed.use
        approval.allowance, approval.allowance_use = use.id, use.number
    follows = policy.find_next_step(demands, approval.expires_at, policy.BEGINNING)
    if follows is not None:
        approval.next_step, approval.next_at = follows.step, follows.at
    approval.approval_digest = compute_approval_digest(approval)
    seal = signatures.seal(purposes.REQUESTS, approval.approval_digest, short=True)
    approval.seal, approval.seal_key_id = seal.mac, seal.key_id
    return approval


def check_digests(approval: Approval) -> None:
    """Raise NotConfirmed unless the row still has its two digests."""
    if compute_action_digest(approval) != approval.action_digest:
        raise NotConfirmed("the stored call differs from the one submitted for review")
    if compute_approval_digest(approval) != approval.approval_digest:
        raise NotConfirmed("the stored request differs from the one submitted for review")


def check_seal(approval: Approval) -> None:
    """Raise NotConfirmed unless the engine opened exactly this request, and a person made any extension; KeyMissing.

    An attacker with write access can change a request and recompute its digests before a reviewer sees it. Only the
    MAC detects a changed sentence, risk, requester, deadline or time.
    """
    seal = signatures.Seal(mac=approval.seal, key_id=approval.seal_key_id)
    if not signatures.verify(purposes.REQUESTS, seal, approval.approval_digest, short=True):
        raise NotConfirmed("the stored request differs from the sealed one")
    if approval.first_expires_at is not None:
        statements.check_extensions(approval)


def compute_action_digest(approval: Approval) -> str | None:
    """Return the digest of the stored call, None if the stored values are no valid call."""
    try:
        path = tuple(approval.path)
        return _compute_action_digest(
            approval.tool, approval.schema, approval.args, path, approval.effect
        )
    except (ValueError, TypeError, RecursionError, NotJson):
        return None


def check_edit(approval: Approval, args: Any, digest: str | None) -> None:
    """Raise NotConfirmed unless `digest` is the action digest of the stored call with these arguments instead."""
    edited = digest_of_action(
        tool=approval.tool,
        schema=approval.schema,
        args=args,
        path=tuple(approval.path),
        effect=EffectClass(approval.effect),
    )
    if edited != digest:
        raise NotConfirmed("the edited arguments differ from the signed ones")


def compute_approval_digest(approval: Approval) -> str:
    """Return the digest of all values shown to reviewers and of those that bind them to this gate."""
    # A program that writes to Postgres cannot move the request in lists: the digest has the time. Older requests have
    # it in their nonce too.
    asked_at = f"@{_format_moment(approval.created_at)}"
    return hash_value(
        {
            "action": approval.action_digest,
            "run": str(approval.run_id),
            "gate": str(approval.gate),
            "kind": approval.kind,
            "frame": approval.frame,
            "call": approval.call,
            "nonce": approval.nonce.removesuffix(asked_at) + asked_at,
            "risk": approval.risk,
            "sentence": approval.sentence,
            "policy": approval.policy_version,
            **({"rule": approval.rule} if approval.rule is not None else {}),
            "requester": approval.requester,
            "origin": approval.origin,
            "deadline": _format_moment(approval.first_expires_at or approval.expires_at),
            "not_before": _format_moment(approval.not_before),
            "result_schema": approval.result_schema,
            **({} if approval.preview is None else {"preview": approval.preview}),
            **(
                {}
                if approval.revises is None and approval.revision == 1
                else {"revises": str(approval.revises), "revision": approval.revision}
            ),
            **(
                {}
                if approval.allowance is None
                else {"allowance": [str(approval.allowance), approval.allowance_use]}
            ),
        }
    )


# Cached: a worker needs the same digest when it applies a decision and again before the effect.
@lru_cache(RECENT)
def _compute_action_digest(
    tool: str, schema: str, args: str, path: tuple[str, ...], effect: str
) -> str:
    return digest_of_action(
        tool=tool,
        schema=schema,
        args=json.loads(args),
        path=path,
        effect=EffectClass(effect),
    )


def list_schema_texts(snapshot: ReviewSnapshot) -> list[str]:
    """Return the schemas of the call that its request refers to by their digests."""
    texts = [encode_value(snapshot.schema)]
    if snapshot.kind in BEFORE_CALL and snapshot.result_schema is not None:
        texts.append(encode_value(snapshot.result_schema))
    return texts


def _encode_result_schema(snapshot: ReviewSnapshot) -> str | None:
    """Return the schema of the result that a reviewer may report, as text, or give instead, by reference.

    None if the tool declares none, and for a gate without a call.
    """
    if snapshot.result_schema is None:
        return None
    if snapshot.kind.is_in_doubt:
        return encode_value(snapshot.result_schema)
    return (
        compute_digest(encode_value(snapshot.result_schema))
        if snapshot.kind in BEFORE_CALL
        else None
    )


def encode_value(value: Any) -> str:
    """Write a JSON value as it is stored in a request."""
    return _ENCODER.encode(value)


def _format_moment(at: datetime | None) -> str | None:
    """Format a time in UTC, as the database returns it."""
    return None if at is None else at.astimezone(UTC).isoformat()


def build_schema_part(texts: Sequence[str]) -> StatementPart:
    """Return the part of a step that stores those of these schemas that are new."""
    rows = [{"digest": compute_digest(text), "body": text} for text in texts]
    return StatementPart(name="schemas", sql=_STORE, parameters={"schemas": json.dumps(rows)})


@lru_cache(RECENT_SCHEMAS)
def compute_digest(schema: str) -> str:
    """Return the digest of a schema, given as text. Raises ValueError, RecursionError or NotJson."""
    return hash_value(json.loads(schema))


def read_schema_text(schema: str) -> str:
    """Return the text of a schema, given as text or by reference. Raises NotConfirmed if it is not stored."""
    return _read(schema) if schema.startswith(_REFERENCE) else schema


@lru_cache(RECENT_SCHEMAS)
def _read(digest: str) -> str:
    body = ToolSchema.objects.filter(digest=digest).values_list("body", flat=True).first()
    try:
        if body is not None and compute_digest(body) == digest:
            return body
    except (ValueError, RecursionError, NotJson):
        pass
    raise NotConfirmed("the schema of the tool is missing, or not the one that was stored")


def find_result_schema(approval: Approval) -> dict[str, Any] | None:
    """Return the schema of the tool's result, None if it declares none."""
    if approval.result_schema is None:
        return None
    schema: dict[str, Any] = json.loads(read_schema_text(approval.result_schema))
    return schema


def is_text_schema(schema: Any) -> bool:
    """Tell whether a result of this schema is text and nothing else."""
    return isinstance(schema, dict) and schema.get("type") == "string"


def read_result(text: str, schema: Any) -> Any:
    """Read a result typed into the form: as text if the schema says text, else as JSON.

    Without a schema, a value that does not begin like JSON is text. Raise InvalidInput.
    """
    if is_text_schema(schema):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        if schema is None and not text.lstrip().startswith(("{", "[", '"')):
            return text
        position = f" (line {exc.lineno})" if isinstance(exc, json.JSONDecodeError) else ""
        raise InvalidInput("result", f"is not JSON{position}") from exc


def check_result(result: Any, schema: dict[str, Any] | None) -> None:
    """Raise InvalidInput, naming `result` or the place in it, unless the call could return this."""
    require_json_input(result, "result", MAX_REPORTED)
    if sealing.has_sealed_mark(result):
        raise InvalidInput(
            "result", "must not hold a sealed secret: only what tools return is sealed"
        )
    for problem in json_schema.list_problems(schema or {}, result, "result"):
        raise InvalidInput(problem.field, problem.detail)
