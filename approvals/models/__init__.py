"""Defines the tables of approvals, one module per noun. People and groups are Django's own."""

from approvals.models.absences import Absence
from approvals.models.accounts import (
    Assignment,
    LoginFailures,
    PasswordLink,
    SavedView,
    TimePreference,
    Token,
)
from approvals.models.allowances import AllowanceAct
from approvals.models.audit import AuditEntry, AuditHead
from approvals.models.notices import MailPreference, SentMail
from approvals.models.policies import PolicyAct
from approvals.models.prompts import PromptAct
from approvals.models.readings import ReviewTime
from approvals.models.requests import (
    ASKING_AGENT,
    IN_DOUBT,
    OF_CALL,
    ROOT_AGENT,
    Approval,
    ApprovalOutcome,
    Vote,
)
from approvals.models.teamwork import ApprovalClaim, ApprovalViewer, Comment, Handover
from approvals.models.tools import ToolSchema
from approvals.models.versions import VersionDecision, VersionWithdrawal

__all__ = [
    "ASKING_AGENT",
    "IN_DOUBT",
    "OF_CALL",
    "ROOT_AGENT",
    "Absence",
    "AllowanceAct",
    "Approval",
    "ApprovalClaim",
    "ApprovalOutcome",
    "ApprovalViewer",
    "Assignment",
    "AuditEntry",
    "AuditHead",
    "Comment",
    "Handover",
    "LoginFailures",
    "MailPreference",
    "PasswordLink",
    "PolicyAct",
    "PromptAct",
    "ReviewTime",
    "SavedView",
    "SentMail",
    "TimePreference",
    "Token",
    "ToolSchema",
    "VersionDecision",
    "VersionWithdrawal",
    "Vote",
]
