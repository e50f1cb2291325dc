"""Makes the facts of a call that was put to people, for the policy."""

from typing import Any

from approvals.models import Approval
from approvals.policies.judge import Facts
from runtime.core.enums import Risk
from runtime.ports.approvals import ReviewSnapshot


def of(shown: Approval | ReviewSnapshot, args: Any, risk: Risk) -> Facts:
    """Return the facts of the call with these arguments, at this risk of its tool."""
    return Facts(
        tool=shown.tool,
        path=tuple(shown.path),
        args=args,
        risk=risk,
        gated=True,
        effect=str(shown.effect),
        requester=shown.requester,
    )
