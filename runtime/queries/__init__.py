"""The read side of the engine: plain data, few queries, no documents in lists."""

from runtime.queries.outlook import Outlook, Plan, Step, outlook
from runtime.queries.progress import progress
from runtime.queries.runs import (
    GateView,
    JournalItem,
    Page,
    RunDetail,
    RunRow,
    cancel_asked,
    continuation,
    journal_page,
    quarantined,
    run_detail,
    run_details,
    runs_page,
)
from runtime.queries.secrets import PLACEHOLDER, masked
from runtime.queries.tree import CallView, Ending, FrameView, Message, Progress, Retry
from runtime.queries.workers import worker_beats

__all__ = [
    "PLACEHOLDER",
    "CallView",
    "Ending",
    "FrameView",
    "GateView",
    "JournalItem",
    "Message",
    "Outlook",
    "Page",
    "Plan",
    "Progress",
    "Retry",
    "RunDetail",
    "RunRow",
    "Step",
    "cancel_asked",
    "continuation",
    "journal_page",
    "masked",
    "outlook",
    "progress",
    "quarantined",
    "run_detail",
    "run_details",
    "runs_page",
    "worker_beats",
]
