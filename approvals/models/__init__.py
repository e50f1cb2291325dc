"""Defines the tables of approvals, one module per noun. People and groups are Django's own."""

from approvals.models.accounts import (
    Absence,
    Assignment,
    LoginFailures,
    MailPreference,
    PasswordLink,
    SavedView,
    SentMail,
    TimePreference,
    Token,
)
from approvals.models.approvals import (
    ASKING_AGENT,
    IN_DOUBT,
    OF_CALL,
    ROOT_AGENT,
    Approval,
    ApprovalOutcome,
    DailyDecisions,
    ReviewTime,
    ToolSchema,
    Vote,
)
from approvals.models.audit import AuditEntry, AuditHead
from approvals.models.governance import (
    AllowanceAct,
    PolicyAct,
    PromptAct,
    VersionDecision,
    VersionWithdrawal,
)
from approvals.models.instances import ApprovalUse, Instance, InstanceWebhook
from approvals.models.outbox import OutboxMessage
from approvals.models.teamwork import ApprovalClaim, ApprovalViewer, Comment, Handover

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
    "ApprovalUse",
    "ApprovalViewer",
    "Assignment",
    "AuditEntry",
    "AuditHead",
    "Comment",
    "DailyDecisions",
    "Handover",
    "Instance",
    "InstanceWebhook",
    "LoginFailures",
    "MailPreference",
    "OutboxMessage",
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
