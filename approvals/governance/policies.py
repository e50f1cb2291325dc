"""The versions of the policy, from the signed acts on them, and the one in force, as this process knows it.

A missing or changed act is an error, never a weaker policy: then calls wait for people. A process asks the database at
most once a second whether there is another act. An approval keeps the version and the demands that it was opened with.
"""

import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from approvals.errors import PolicyBroken
from approvals.models import Approval, PolicyAct
from approvals.rules import judge as evaluation
from approvals.rules import policy_text
from approvals.rules.judge import Facts, Judgement
from approvals.rules.policy import Policy
from approvals.signed.log import SignedLog
from runtime.core.values.enums import Risk
from runtime.ports.approvals import ReviewSnapshot

Act = PolicyAct.PolicyChange

RECENT_SECONDS = 1.0
FIRST_NUMBER = 2  # version 1 is the default policy, which has no act


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A version with its acts. `effective_at` is None until another admin confirms it, and if it was withdrawn."""

    number: int
    text: str
    author: str | None
    proposed_at: datetime
    effective_at: datetime | None = None
    confirmed_by: str | None = None
    scheduled: bool = False  # by the only admin
    withdrawn: bool = False
    order: int = 0  # the act by which it takes effect

    def waits(self, at: datetime) -> bool:
        """Tell whether the version is not in force yet and may still be."""
        return not self.withdrawn and (self.effective_at is None or self.effective_at > at)


def read_versions() -> tuple[PolicyVersion, ...]:
    """Read and verify every act. Raises PolicyBroken."""
    return tuple(LOG.read().values())


def version_in_force(versions: tuple[PolicyVersion, ...], at: datetime) -> PolicyVersion | None:
    """Return the version in force at this time, the one that was put in force last; None for the default policy.

    So a version that waited for its day does not replace one that was confirmed meanwhile.
    """
    past = [
        version
        for version in versions
        if not version.withdrawn and version.effective_at is not None and version.effective_at <= at
    ]
    return max(past, key=lambda version: version.order, default=None)


def _apply(versions: dict[int, PolicyVersion], row: PolicyAct) -> dict[int, PolicyVersion]:
    versions[row.number] = _after(versions.get(row.number), row)
    return versions


def _after(before: PolicyVersion | None, row: PolicyAct) -> PolicyVersion:
    """Return the version after this act."""
    if row.act == Act.PROPOSED and before is None:
        return PolicyVersion(number=row.number, text=row.text, author=row.by, proposed_at=row.at)
    if row.act == Act.PROPOSED or before is None:
        raise PolicyBroken(f"act {row.seq} on the policy is about no proposed version")
    withdrawn = row.act == Act.WITHDRAWN
    return replace(
        before,
        effective_at=None if withdrawn else row.effective_at,
        confirmed_by=row.by if row.act == Act.CONFIRMED else before.confirmed_by,
        scheduled=row.act == Act.SCHEDULED,
        withdrawn=withdrawn,
        order=row.seq,
    )


LOG = SignedLog(PolicyAct, noun="the policy", start=dict, apply=_apply, broken=PolicyBroken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedPolicy:
    checked: float  # monotonic
    policy: Policy


_lock = threading.Lock()
_cached: _CachedPolicy | None = None


def current() -> Policy:
    """Return the policy in force. Raises PolicyBroken if its rows are not the signed ones."""
    global _cached
    cached = _cached
    if cached is not None and time.monotonic() - cached.checked < RECENT_SECONDS:
        return cached.policy
    checked = time.monotonic()
    # Without the lock: a dead connection must hold up its own thread only.
    rows, at = LOG.recent_rows()
    version = version_in_force(tuple(LOG.fold(rows, {}).values()), at)
    with _lock:
        _cached = _CachedPolicy(checked=checked, policy=_policy(version, _cached))
        return _cached.policy


def judge(facts: Facts) -> tuple[str, Judgement]:
    """Evaluate a call by the policy in force, and return its version too. Raises PolicyBroken."""
    policy = current()
    return policy.version, evaluation.judge(policy, facts)


def forget() -> None:
    """Ask the database at the next use."""
    global _cached
    _cached = None
    LOG.forget()


def at_time(versions: tuple[PolicyVersion, ...], at: datetime) -> Policy:
    """Return the policy in force at this time among these versions."""
    return _policy(version_in_force(versions, at), None)


def _policy(version: PolicyVersion | None, cached: _CachedPolicy | None) -> Policy:
    if version is None:
        return Policy()
    if cached is not None and cached.policy.version == str(version.number):
        return cached.policy
    return policy_of(version)


def policy_of(version: PolicyVersion) -> Policy:
    """Read the rules of a version. Raises PolicyBroken for one that today's rules cannot read."""
    try:
        return policy_text.parse(version.text, str(version.number))
    except policy_text.PolicyInvalid as exc:  # it was valid when it was saved
        raise PolicyBroken(f"version {version.number} of the policy cannot be read: {exc}") from exc


def facts_of(call: Approval | ReviewSnapshot, args: Any, risk: Risk) -> Facts:
    """Return the facts of the call with these arguments, at this risk of its tool."""
    return Facts(
        tool=call.tool,
        path=tuple(call.path),
        args=args,
        risk=risk,
        gated=True,
        effect=str(call.effect),
        requester=call.requester,
    )
