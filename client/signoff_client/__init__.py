"""The client of Signoff: start runs, decide requests, follow a run, and put calls behind an approval."""

from signoff_client.client import AsyncSignoff, Signoff
from signoff_client.errors import (
    DecidedBefore,
    InvalidField,
    NoAnswer,
    NotApproved,
    NotAuthenticated,
    NotInTime,
    NotPermitted,
    NotPossible,
    NotThere,
    Refusal,
    RunNotCompleted,
    SignoffError,
    TooLateToDecide,
)
from signoff_client.gate import approved
from signoff_client.routes import Approval, ApprovalPage, Gate, JournalEntry, Run, RunPage

__all__ = [
    "Approval",
    "ApprovalPage",
    "AsyncSignoff",
    "DecidedBefore",
    "Gate",
    "InvalidField",
    "JournalEntry",
    "NoAnswer",
    "NotApproved",
    "NotAuthenticated",
    "NotInTime",
    "NotPermitted",
    "NotPossible",
    "NotThere",
    "Refusal",
    "Run",
    "RunNotCompleted",
    "RunPage",
    "Signoff",
    "SignoffError",
    "TooLateToDecide",
    "approved",
]
