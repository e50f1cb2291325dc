"""The registry of policy settings: every key of a rule, with its meaning. Pure.

A key that is not here is refused, and a test flips each one and sees a difference: a setting that does nothing is
worse than none, because people rely on it.
"""

from collections.abc import Mapping

SETTINGS: Mapping[str, str] = {
    "match.tool": "the tools that the rule is about: a name or a list; every tool without it",
    "match.agent": "the agents that make the call: a name or a list",
    "match.risk": "the risk of the tool: low, medium, high, or a list",
    "when": "a condition in CEL over the facts and arguments of the call",
    "approval": "required: a person must approve, also where the tool asks for none",
    "risk": "low, medium or high: the call has at least this risk",
    "quorum": "how many distinct people must approve",
    "groups": "the groups whose members may approve",
    "people": "the people who may approve, besides the members of groups",
    "stages": "stages in sequence, each with its own quorum, groups and people",
    "reason": "required: an approval needs a reason too",
    "expires_after": "seconds until the request expires, or until the first step of escalation",
    "escalate": "steps with groups, people and expires_after: at a deadline these may decide too",
    "on_expiry": "deny, fail (the run) or answer (with a value): the consequence of the last deadline",
    "reviewer_may_write": "true: people who may decide can write to the run, and still decide the requests open then",
    "undo": "seconds in which a decision at low or medium risk can be undone",
}
