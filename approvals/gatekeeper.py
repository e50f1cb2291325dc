"""The engine's port for gates: opens requests, and vouches for an approved call before it starts.

Two digests: the engine's action digest says what would be done; the request digest binds it to
this run, gate and nonce, to what the reviewer is told (risk, sentence, requester, deadline) and
to the policy that asked. The reviewer names the second, the engine asks with the first, and both
are recomputed from the stored row.
"""

import json
import secrets
from collections.abc import Sequence
from uuid import UUID, uuid4

from django.db import transaction
from django.utils import timezone

from approvals import audit, policy
from approvals.models import Request
from runtime.core.decisions import EffectClass
from runtime.core.digest import action_digest as digest_of_action
from runtime.core.digest import sha256_of
from runtime.core.errors import NotJson
from runtime.models import Run
from runtime.ports import ActionPicture, CallFacts, NotConfirmed


class Gatekeeper:
    """Says which calls need a person and keeps their requests."""

    def gates(self, facts: CallFacts) -> bool:
        """Whether this call waits for a person."""
        return policy.gates(gated=facts.gated, risk=facts.risk)

    def open(self, pictures: Sequence[ActionPicture]) -> None:
        """Write one pending request per picture, inside the caller's transaction on Django's connection."""
        with transaction.atomic():
            # The audit chain of a run grows under its row lock; in one order, should there be several runs.
            runs = {picture.run for picture in pictures}
            list(
                Run.objects.select_for_update(no_key=True)
                .only("id")
                .order_by("id")
                .filter(pk__in=runs)
            )
            requests = Request.objects.bulk_create([_request(picture) for picture in pictures])
            for request in requests:
                audit.append(
                    run=request.run_id,
                    actor=None,
                    act="requested",
                    subject=f"request {request.id}",
                    detail={"digest": request.request_digest, "requester": request.requester},
                )

    def confirm(self, *, gate: UUID, action_digest: str) -> None:
        """Raise NotConfirmed unless somebody approved exactly this action at this gate."""
        request = Request.objects.filter(gate=gate).first()
        if request is None:
            raise NotConfirmed("nobody was asked")
        if request.status != Request.Status.APPROVED:
            raise NotConfirmed(f"the request is {request.status}")
        if not request.decided_by or request.decided_at is None:
            raise NotConfirmed("the request is approved by nobody")
        if request.decided_by == request.requester:
            raise NotConfirmed("the request is approved by its own requester")
        if _action_digest(request) != request.action_digest:
            raise NotConfirmed("the stored action is not the one that was approved")
        if _request_digest(request) != request.request_digest:
            raise NotConfirmed("the stored request is not the one that was approved")
        if action_digest != request.action_digest:
            raise NotConfirmed("the action to start is not the one that was approved")

    def approvals_of(self, gates: Sequence[UUID]) -> dict[UUID, UUID]:
        """The approval request of each gate that has one, by gate."""
        return dict(Request.objects.filter(gate__in=gates).values_list("gate", "id"))


def _request(picture: ActionPicture) -> Request:
    request = Request(
        id=uuid4(),
        run_id=picture.run,
        gate=picture.gate,
        frame=picture.frame,
        call=picture.call,
        tool=picture.tool,
        args=json.dumps(picture.args, ensure_ascii=False, allow_nan=False),
        schema=json.dumps(picture.schema, ensure_ascii=False, allow_nan=False),
        path=list(picture.path),
        effect=str(picture.effect),
        risk=str(picture.risk),
        sentence=picture.sentence,
        action_digest=picture.action_digest,
        nonce=secrets.token_hex(16),
        policy_version=policy.POLICY_VERSION,
        requester=picture.requester,
        created_at=timezone.now(),  # one by one, so that a turn's requests keep the order of its calls
    )
    request.request_digest = _request_digest(request)
    return request


def _action_digest(request: Request) -> str | None:
    """The digest of the action as stored, None if what is stored is no action."""
    try:
        return digest_of_action(
            tool=request.tool,
            schema=sha256_of(json.loads(request.schema)),
            args=json.loads(request.args),
            path=tuple(request.path),
            effect=EffectClass(request.effect),
        )
    except (ValueError, TypeError, RecursionError, NotJson):
        return None


def _request_digest(request: Request) -> str:
    return sha256_of(
        {
            "action": request.action_digest,
            "run": str(request.run_id),
            "gate": str(request.gate),
            "frame": request.frame,
            "call": request.call,
            "nonce": request.nonce,
            "risk": request.risk,
            "sentence": request.sentence,
            "policy": request.policy_version,
            "requester": request.requester,
            "deadline": None if request.expires_at is None else request.expires_at.isoformat(),
        }
    )
