"""Builds the stored snapshot of a call for review, computes its two digests, and makes and checks its MAC."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from approvals import policy
from approvals.models import Request
from approvals.policies import escalation
from approvals.policies.rules import Demands
from approvals.requests import schemas
from runtime.core.digest import action_digest as digest_of_action
from runtime.core.digest import sha256_of
from runtime.core.enums import BEFORE_CALL, EffectClass, GateKind
from runtime.core.errors import NotJson
from runtime.core.ids import RANDOM_BITS, by_time
from runtime.keyring import macs, purposes
from runtime.ports.approvals import NotConfirmed, ReviewSnapshot

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_AT = "@"  # in a nonce, before the time

RECENT = 32  # actions whose digests a process remembers


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the policy of this version says about a call: at least this risk, and its demands."""

    version: str = policy.POLICY_VERSION
    risk: str
    demands: Demands | None = None


def row(
    snapshot: ReviewSnapshot, at: datetime, origin: Sequence[str] = (), judged: Judged | None = None
) -> Request:
    """Build a pending request, asked at `at`, without writing it. `origin` lists the people in the run's origin."""
    judged = judged or Judged(risk=str(snapshot.risk))
    demands = judged.demands
    request = Request(
        id=by_time(at, secrets.randbits(RANDOM_BITS)),
        run_id=snapshot.run,
        gate=snapshot.gate,
        kind=str(snapshot.kind),
        frame=snapshot.frame,
        call=snapshot.call,
        tool=snapshot.tool,
        args=text(snapshot.args),
        schema=schemas.digest_of(text(snapshot.schema)),
        result_schema=_result_schema(snapshot),
        preview=None if snapshot.preview is None else text(snapshot.preview),
        path=list(snapshot.path),
        effect=str(snapshot.effect),
        risk=judged.risk,
        sentence=snapshot.sentence,
        action_digest=snapshot.action_digest,
        nonce=_nonce(at),
        policy_version=judged.version,
        rule=None if demands is None else demands.stored(),
        voted=[],
        voted_for=[],
        open_to=None if demands is None else list(demands.stages[0].keys),
        readers=_readers(snapshot, demands),
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
        request.allowance, request.allowance_use = use.id, use.number
    follows = escalation.next_step(demands, request.expires_at, escalation.BEGINNING)
    if follows is not None:
        request.next_step, request.next_at = follows.step, follows.at
    request.request_digest = request_digest(request)
    seal = macs.seal(purposes.REQUESTS, request.request_digest, short=True)
    request.seal, request.seal_key_id = seal.mac, seal.key_id
    return request


def _readers(snapshot: ReviewSnapshot, demands: Demands | None) -> list[str] | None:
    """Return whom the rule names. A call in doubt has no deadline, so every reviewer may resolve it."""
    if demands is None or demands.readers is None or snapshot.kind is GateKind.IN_DOUBT:
        return None
    return list(demands.readers)


def check_digests(request: Request) -> None:
    """Raise NotConfirmed unless the row still has its two digests."""
    if action_digest(request) != request.action_digest:
        raise NotConfirmed("the stored call differs from the one submitted for review")
    if request_digest(request) != request.request_digest:
        raise NotConfirmed("the stored request differs from the one submitted for review")


def check_seal(request: Request) -> None:
    """Raise NotConfirmed unless the engine opened exactly this request; KeyMissing.

    An attacker with write access can change a request and recompute its digests before a reviewer sees it. Only the
    MAC detects a changed sentence, risk, requester, deadline or time.
    """
    seal = macs.Seal(mac=request.seal, key_id=request.seal_key_id)
    if not macs.verify(purposes.REQUESTS, seal, request.request_digest, short=True):
        raise NotConfirmed("the stored request differs from the sealed one")
    _, _, asked_at = request.nonce.partition(_AT)
    if asked_at != _moment(request.created_at):
        raise NotConfirmed("the stored time of the request differs from the sealed one")


def action_digest(request: Request) -> str | None:
    """Return the digest of the stored call, None if the stored values are no valid call."""
    try:
        path = tuple(request.path)
        return _action_digest(request.tool, request.schema, request.args, path, request.effect)
    except (ValueError, TypeError, RecursionError, NotJson):
        return None


def check_edit(request: Request, args: Any, digest: str | None) -> None:
    """Raise NotConfirmed unless `digest` is the action digest of the stored call with these arguments instead."""
    edited = digest_of_action(
        tool=request.tool,
        schema=request.schema,
        args=args,
        path=tuple(request.path),
        effect=EffectClass(request.effect),
    )
    if edited != digest:
        raise NotConfirmed("the edited arguments differ from the signed ones")


def request_digest(request: Request) -> str:
    """Return the digest of all values shown to reviewers and of those that bind them to this gate."""
    return sha256_of(
        {
            "action": request.action_digest,
            "run": str(request.run_id),
            "gate": str(request.gate),
            "kind": request.kind,
            "frame": request.frame,
            "call": request.call,
            "nonce": request.nonce,
            "risk": request.risk,
            "sentence": request.sentence,
            "policy": request.policy_version,
            **({"rule": request.rule} if request.rule is not None else {}),
            "requester": request.requester,
            "origin": request.origin,
            "deadline": _moment(request.expires_at),
            "not_before": _moment(request.not_before),
            "result_schema": request.result_schema,
            **({} if request.preview is None else {"preview": request.preview}),
            **(
                {}
                if request.revises is None and request.revision == 1
                else {"revises": str(request.revises), "revision": request.revision}
            ),
            **({} if request.allowance is None else {"allowance": _use(request)}),
        }
    )


def _use(request: Request) -> list[Any]:
    return [str(request.allowance), request.allowance_use]


# Cached: a worker needs the same digest when it applies a decision and again before the effect.
@lru_cache(RECENT)
def _action_digest(tool: str, schema: str, args: str, path: tuple[str, ...], effect: str) -> str:
    return digest_of_action(
        tool=tool,
        schema=schema,
        args=json.loads(args),
        path=path,
        effect=EffectClass(effect),
    )


def _nonce(at: datetime) -> str:
    """Return random text and the time of the request."""
    return f"{secrets.token_hex(16)}{_AT}{_moment(at)}"


def schema_texts(snapshot: ReviewSnapshot) -> list[str]:
    """Return the schemas of the call that its request refers to by their digests."""
    texts = [text(snapshot.schema)]
    if snapshot.kind in BEFORE_CALL and snapshot.result_schema is not None:
        texts.append(text(snapshot.result_schema))
    return texts


def _result_schema(snapshot: ReviewSnapshot) -> str | None:
    """Return the schema of the result that a reviewer may report, as text, or give instead, by reference.

    None if the tool declares none, and for a gate without a call.
    """
    if snapshot.result_schema is None:
        return None
    match snapshot.kind:
        case GateKind.IN_DOUBT:
            return text(snapshot.result_schema)
        case GateKind.APPROVAL | GateKind.QUESTION:
            return schemas.digest_of(text(snapshot.result_schema))
        case _:
            return None


def text(value: Any) -> str:
    """Write a JSON value as it is stored in a request."""
    return _ENCODER.encode(value)


def _moment(at: datetime | None) -> str | None:
    """Format a time in UTC, as the database returns it."""
    return None if at is None else at.astimezone(UTC).isoformat()
