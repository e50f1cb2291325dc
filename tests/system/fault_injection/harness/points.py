"""The registry of kill points: which ones there must be, computed from the vocabularies of the core.

A kind of commit or of effect that is in neither list, or a point that no run passes, fails the tests.
"""

from itertools import product

from approvals.decisions import external_requests, gateway_calls
from runtime.core.run.events import EVENT_TYPES
from runtime.core.values.enums import EffectClass
from runtime.triggers import events, times, webhooks
from runtime.triggers.sources import SOURCES as SOURCES_OF_TRIGGERS

DEPTHS = (0, 1, 2)
COMMIT = ("before", "written", "committed")
EFFECT = ("starting", "performed")
OF_ITEMS = (":FrameOpened:2", ":FrameClosed:2")  # frames of items, which run beside each other
# Of a sweeper that starts the runs of a schedule: see test_triggers.py.
SCHEDULES = {f"{moment}:{times.FAILPOINT}:0" for moment in COMMIT}
# Of a sweeper that starts the runs of a trigger: see test_triggers.py.
TRIGGERS = {f"{moment}:{events.FAILPOINT}:0" for moment in COMMIT}
# Of a web process that receives a delivery: see test_triggers.py.
DELIVERIES = {f"{moment}:{webhooks.FAILPOINT}:0" for moment in ("written", "committed")}
# Of a web process that starts the run of a call through an MCP gateway, or notes its result as given: see
# test_gateway_calls.py.
GATEWAYS = {
    f"{moment}:{kind}:0"
    for moment, kind in product(
        ("written", "committed"), (gateway_calls.ASK, gateway_calls.COLLECT)
    )
}
# Of a sweeper that reads the source of a trigger: see test_sources.py.
SOURCES = {
    f"{moment}:{source.failpoint}:0"
    for moment, source in product(COMMIT, SOURCES_OF_TRIGGERS.values())
}
# Of a sweeper that sends a message: see test_webhooks.py.
MESSAGES = {"begun:message:0", "sent:message:0"}
# Of a sweeper that archives a run: see test_archive.py.
ARCHIVE = {f"{moment}:archive:0" for moment in ("reserved", "written", "deleted", "archived")}

# Of a web process that serves an agent outside: see test_external_requests.py.
INSTANCES = {
    f"{moment}:{kind}:0"
    for moment, kind in product(
        ("written", "committed"),
        (external_requests.CREATE, external_requests.CONSUME, external_requests.OUTCOME),
    )
}


def of_instances(kind: str) -> list[str]:
    """The points of one act of an agent outside."""
    return sorted(point for point in INSTANCES if kind in point)


def of_gateways(kind: str) -> list[str]:
    """The points of one act of a web process with a gateway."""
    return sorted(point for point in GATEWAYS if f":{kind}:" in point)


_SAME_ENTRY = (
    "what follows from it is in the same entry, unless a cancelled run waits or no slot is free"
)
_BY_PEOPLE = "written by a person, in their transaction"
_ELSEWHERE = (
    "no two releases and no stopped worker here: see test_versions.py, test_late_outcomes.py"
)
_NO_LATE_ANSWER = "no answer here comes after the decision: see test_inquiries.py"
_NO_THREAD = "no run here is in a thread: see test_thread_memory.py"
_ROOT = "the root's frame ends with the run"
_NO_FRAME = "is about the whole run, which counts as depth 0"

# Kinds of commit that no step has, with the reason; None stands for every depth.
IMPOSSIBLE: dict[tuple[str, int | None], str] = {
    **{
        (kind, None): reason
        for reason, kinds in (
            (_BY_PEOPLE, ("RunStarted", "Forked", "Exported", "Imported", "Retried")),
            (_SAME_ENTRY, ("ModelFailed", "CallAdmitted", "CallPreviewed", "OutcomeUnknown")),
            (_SAME_ENTRY, ("BudgetExceeded",)),
            (_ELSEWHERE, ("OutcomeArrived", "AgentChanged")),
            (_NO_LATE_ANSWER, ("AnswerDropped",)),
            (_NO_THREAD, ("MemorySummarised",)),
        )
        for kind in kinds
    },
    ("FrameClosed", 0): _ROOT,
    **{
        (kind, depth): _NO_FRAME
        for kind in (
            *("Completed", "Failed", "Cancelling", "Cancelled", "Paused", "Resumed"),
            *("MessageReceived", "BudgetGranted"),
        )
        for depth in (1, 2)
    },
}


def commits() -> set[tuple[str, int]]:
    kinds = [event.__name__ for event in EVENT_TYPES]
    return {
        (kind, depth)
        for kind, depth in product(kinds, DEPTHS)
        if (kind, None) not in IMPOSSIBLE and (kind, depth) not in IMPOSSIBLE
    }


def registry() -> set[str]:
    effects = set(product(["model", "preview", *EffectClass], DEPTHS))
    return {
        f"{moment}:{kind}:{depth}"
        for moments, kinds in ((COMMIT, commits()), (EFFECT, effects))
        for moment, (kind, depth) in product(moments, kinds)
    }


def deepest() -> set[str]:
    """Each moment of each kind at the greatest depth that it has."""
    return set({point.rpartition(":")[0]: point for point in sorted(registry())}.values())


def may_leave_doubt(point: str) -> bool:
    """Tell whether a death there can be between the intent and the result of a `write`, also of another item."""
    moment, kind, _ = point.split(":")
    window = {
        ("written", "ToolStarted"),
        ("committed", "ToolStarted"),
        ("starting", "write"),
        ("performed", "write"),
        ("before", "ToolReturned"),
    }
    return (moment, kind) in window or point.endswith(OF_ITEMS)
