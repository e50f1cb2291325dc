"""The policy in force, as this process knows it. It asks the database at most once a second whether it changed.

A request keeps the version and the demands that it was opened with: a later version does not change them.
"""

import threading
import time
from dataclasses import dataclass
from datetime import datetime

from approvals.policies import judge as evaluation
from approvals.policies import text
from approvals.policies.judge import Facts, Judgement
from approvals.policies.rules import Policy
from approvals.policy_versions import acts
from approvals.policy_versions.acts import PolicyBroken, PolicyVersion

RECENT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    checked: float  # monotonic
    count: int
    versions: tuple[PolicyVersion, ...]
    policy: Policy


_lock = threading.Lock()
_known: _Known | None = None


def current() -> Policy:
    """Return the policy in force. Raises PolicyBroken if its rows are not the signed ones."""
    global _known
    known = _known
    if known is not None and time.monotonic() - known.checked < RECENT_SECONDS:
        return known.policy
    checked = time.monotonic()
    count, at = acts.count()
    with _lock:
        found = _known.versions if _known else ()
        if _known is None or _known.count != count:
            found = acts.versions()
        policy = _policy(acts.in_force(found, at), _known)
        _known = _Known(checked=checked, count=count, versions=found, policy=policy)
        return policy


def judge(facts: Facts) -> tuple[str, Judgement]:
    """Evaluate a call by the policy in force, and return its version too. Raises PolicyBroken."""
    policy = current()
    return policy.version, evaluation.judge(policy, facts)


def forget() -> None:
    """Ask the database at the next use."""
    global _known
    _known = None


def at_time(found: tuple[PolicyVersion, ...], at: datetime) -> Policy:
    """Return the policy in force at this time among these versions."""
    return _policy(acts.in_force(found, at), None)


def _policy(version: PolicyVersion | None, known: _Known | None) -> Policy:
    if version is None:
        return Policy()
    if known is not None and known.policy.version == str(version.number):
        return known.policy
    try:
        return text.parse(version.text, str(version.number))
    except text.PolicyInvalid as exc:  # it was valid when it was saved
        raise PolicyBroken(f"version {version.number} of the policy cannot be read: {exc}") from exc
