"""The registry of kill points: which ones there must be, computed from the vocabularies of the core.

A kind of commit or of effect that is in neither list, or a point that no run passes, fails the tests.
"""

from itertools import product

from runtime.core.enums import EffectClass
from runtime.core.events import EVENT_TYPES

DEPTHS = (0, 1, 2)
COMMIT = ("before", "written", "committed")
EFFECT = ("starting", "performed")

_SAME_ENTRY = (
    "what follows from it without the outside is in the same entry, so it is never the last event"
)
_NO_FRAME = "is about the whole run, which counts as depth 0"

# Kinds of commit that no step has, with the reason; None stands for every depth.
IMPOSSIBLE: dict[tuple[str, int | None], str] = {
    ("RunStarted", None): "written by the person who starts the run, in their transaction",
    **{
        (
            kind,
            None,
        ): "written by the person who forks, exports, imports or retries, in their transaction"
        for kind in ("Forked", "Exported", "Imported", "Retried")
    },
    ("ModelReplied", None): f"{_SAME_ENTRY}, unless a cancelled run waits for something else",
    ("ModelFailed", None): f"{_SAME_ENTRY}, unless a cancelled run waits for something else",
    ("CallAdmitted", None): f"{_SAME_ENTRY}, unless no slot is free",
    ("OutcomeUnknown", None): f"{_SAME_ENTRY}, unless a cancelled run waits for something else",
    (
        "OutcomeArrived",
        None,
    ): "no worker here outlives its lease; tests/execution/effects/test_late_outcomes.py has one",
    (
        "AgentChanged",
        None,
    ): "all workers here have one release; tests/execution/admission/test_versions.py has two",
    ("BudgetExceeded", None): "the gate that it opens is in the same entry",
    ("FrameClosed", 0): "the root's frame ends with the run",
    **{
        (kind, depth): _NO_FRAME
        for kind in (
            "Completed",
            "Failed",
            "Cancelling",
            "Cancelled",
            "Paused",
            "Resumed",
            "MessageReceived",
            "BudgetGranted",
        )
        for depth in (1, 2)
    },
}


def commits() -> set[tuple[str, int]]:
    """Every kind of commit and depth that must be passed."""
    kinds = [event.__name__ for event in EVENT_TYPES]
    return {
        (kind, depth)
        for kind, depth in product(kinds, DEPTHS)
        if (kind, None) not in IMPOSSIBLE and (kind, depth) not in IMPOSSIBLE
    }


def effects() -> set[tuple[str, int]]:
    """Every kind of effect and depth that must be passed."""
    return set(product(["model", *EffectClass], DEPTHS))


def registry() -> set[str]:
    """Every point, by name."""
    return {
        f"{moment}:{kind}:{depth}"
        for moments, kinds in ((COMMIT, commits()), (EFFECT, effects()))
        for moment, (kind, depth) in product(moments, kinds)
    }


def may_leave_doubt(point: str) -> bool:
    """Tell whether a death there can be between the intent and the result of a `write`."""
    moment, kind, _ = point.split(":")
    window = {
        ("written", "ToolStarted"),
        ("committed", "ToolStarted"),
        ("starting", "write"),
        ("performed", "write"),
        ("before", "ToolReturned"),
    }
    return (moment, kind) in window
