"""Makes the terms of a call, which are fixed when it is admitted, and the facts that the policy judges."""

from runtime.core.call_options import CallOptions
from runtime.core.continuation import Call, Continuation
from runtime.core.digest import action_digest
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import PolicyFacts


def facts_of(now: Continuation, frame: str, call: Call) -> PolicyFacts:
    """Return the facts of a call that the policy judges."""
    return PolicyFacts(path=now.path(frame, call.tool), args=call.args, requester=now.requester)


def terms_of(now: Continuation, frame: str, call: Call, info: CallInfo) -> CallOptions:
    """Return the terms of a call as this code describes it."""
    digest = action_digest(
        tool=info.tool,
        schema=info.schema_digest,
        args=call.args,
        path=now.path(frame, call.tool),
        effect=info.effect,
    )
    return CallOptions(
        effect=info.effect,
        digest=digest,
        deadline=info.deadline,
        delegate=info.delegate,
        retry=info.retry,
        waits=info.waits,
        risk=info.risk if info.judged else None,
        plan=info.plan,
        answers=info.answers,
        tells=info.tells,
    )
