"""The read side of the engine: plain data, few queries, no documents in lists."""

from runtime.queries.allowance import TooLong
from runtime.queries.comparison import Comparison, compare
from runtime.queries.contents import content
from runtime.queries.filters import LONGEST_SEARCH, TABS, narrowed
from runtime.queries.forks import ForkView, fork_view, last_quiescent
from runtime.queries.history import History, StepView, history
from runtime.queries.late import LateView, late, late_of_call
from runtime.queries.lookalikes import noted
from runtime.queries.lost import LossView, losses
from runtime.queries.moves import Move
from runtime.queries.outcomes import Outcome, Place, outcomes
from runtime.queries.outlook import Outlook, Plan, Step, outlook
from runtime.queries.past import Past, past
from runtime.queries.progress import progress
from runtime.queries.rows import Row, RowKind, Tone
from runtime.queries.runs import (
    Asked,
    GateView,
    JournalItem,
    Page,
    RunDetail,
    RunLine,
    RunRow,
    asked,
    cancel_asked,
    continuation,
    journal_page,
    quarantined,
    run_detail,
    run_details,
    runs_page,
)
from runtime.queries.secrets import masked
from runtime.queries.spending import Use, spending
from runtime.queries.timeline import Timeline
from runtime.queries.tree import CallView, Ending, FrameView, Message, Progress, Retry
from runtime.queries.versions import Difference, differences
from runtime.queries.workers import (
    has_month,
    late_loops,
    live_versions,
    sweeper_sweeps,
    unserved,
    worker_beats,
)

__all__ = [
    "LONGEST_SEARCH",
    "TABS",
    "Asked",
    "CallView",
    "Comparison",
    "Difference",
    "Ending",
    "ForkView",
    "FrameView",
    "GateView",
    "History",
    "JournalItem",
    "LateView",
    "LossView",
    "Message",
    "Move",
    "Outcome",
    "Outlook",
    "Page",
    "Past",
    "Place",
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
    "TooLong",
    "Use",
    "asked",
    "cancel_asked",
    "compare",
    "content",
    "continuation",
    "differences",
    "fork_view",
    "has_month",
    "history",
    "journal_page",
    "last_quiescent",
    "late",
    "late_loops",
    "late_of_call",
    "live_versions",
    "losses",
    "masked",
    "narrowed",
    "noted",
    "outcomes",
    "outlook",
    "past",
    "progress",
    "quarantined",
    "run_detail",
    "run_details",
    "runs_page",
    "spending",
    "sweeper_sweeps",
    "unserved",
    "worker_beats",
]
