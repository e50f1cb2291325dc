"""The read side of the engine: plain data, few queries, no documents in lists."""

from runtime.queries.filters import LONGEST_SEARCH, TABS, narrowed
from runtime.queries.history import History, StepView, history
from runtime.queries.outlook import Outlook, Plan, Step, outlook
from runtime.queries.past import Past, past
from runtime.queries.progress import progress
from runtime.queries.rows import Row, RowKind, Tone
from runtime.queries.runs import (
    GateView,
    JournalItem,
    Page,
    RunDetail,
    RunLine,
    RunRow,
    cancel_asked,
    continuation,
    journal_page,
    quarantined,
    run_detail,
    run_details,
    runs_page,
)
from runtime.queries.secrets import PLACEHOLDER, has_secret, masked
from runtime.queries.timeline import Timeline
from runtime.queries.tree import CallView, Ending, FrameView, Message, Progress, Retry
from runtime.queries.workers import sweeper_sweeps, worker_beats

__all__ = [
    "LONGEST_SEARCH",
    "PLACEHOLDER",
    "TABS",
    "CallView",
    "Ending",
    "FrameView",
    "GateView",
    "History",
    "JournalItem",
    "Message",
    "Outlook",
    "Page",
    "Past",
    "Plan",
    "Progress",
    "Retry",
    "Row",
    "RowKind",
    "RunDetail",
    "RunLine",
    "RunRow",
    "Step",
    "StepView",
    "Timeline",
    "Tone",
    "cancel_asked",
    "continuation",
    "has_secret",
    "history",
    "journal_page",
    "masked",
    "narrowed",
    "outlook",
    "past",
    "progress",
    "quarantined",
    "run_detail",
    "run_details",
    "runs_page",
    "sweeper_sweeps",
    "worker_beats",
]
