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
from approvals.models.notices import MailPreference, Notice
from approvals.models.policies import PolicyAct
from approvals.models.prompts import PromptAct
from approvals.models.readings import Reading
from approvals.models.requests import ASKING_AGENT, ROOT_AGENT, Outcome, Request, Vote
from approvals.models.teamwork import Claim, Comment, Handover, Viewer
from approvals.models.tools import ToolSchema
from approvals.models.versions import VersionDecision, VersionWithdrawal

__all__ = [
    "ASKING_AGENT",
    "ROOT_AGENT",
    "Absence",
    "AllowanceAct",
    "Assignment",
    "AuditEntry",
    "AuditHead",
    "Claim",
    "Comment",
    "Handover",
    "LoginFailures",
    "MailPreference",
    "Notice",
    "Outcome",
    "PasswordLink",
    "PolicyAct",
    "PromptAct",
    "Reading",
    "Request",
    "SavedView",
    "TimePreference",
    "Token",
    "ToolSchema",
    "VersionDecision",
    "VersionWithdrawal",
    "Viewer",
    "Vote",
]
