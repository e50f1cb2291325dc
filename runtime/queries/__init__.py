"""The read side of the engine: plain data, few queries, no documents in lists."""

from runtime.queries.outlook import Outlook, Plan, Step, outlook
from runtime.queries.progress import progress
from runtime.queries.runs import (
    GateView,
    JournalItem,
    Page,
    RunDetail,
    RunRow,
    continuation,
    journal_page,
    open_gates,
    run_detail,
    run_details,
    runs_page,
)
from runtime.queries.tree import CallView, FrameView, Message, Progress
from runtime.queries.workers import worker_beats

__all__ = [
    "CallView",
    "FrameView",
    "GateView",
    "JournalItem",
    "Message",
    "Outlook",
    "Page",
    "Plan",
    "Progress",
    "RunDetail",
    "RunRow",
    "Step",
    "continuation",
    "journal_page",
    "open_gates",
    "outlook",
    "progress",
    "run_detail",
    "run_details",
    "runs_page",
    "worker_beats",
]
