"""Defines the tables of approvals, one module per noun. People and groups are Django's own."""

from approvals.models.accounts import (
    Absence,
    ApprovalUse,
    Assignment,
    Instance,
    InstanceWebhook,
    LoginFailures,
    PasswordLink,
    SavedView,
    SecondFactor,
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
from approvals.models.notices import NoticeChannel, NoticeTimes, SentNotice
from approvals.models.outbox import OutboxMessage, SlackRequest, Subscription
from approvals.models.provisioning import DirectoryEntry, DirectoryToken, MappingAct
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
    "DirectoryEntry",
    "DirectoryToken",
    "Handover",
    "Instance",
    "InstanceWebhook",
    "LoginFailures",
    "MappingAct",
    "NoticeChannel",
    "NoticeTimes",
    "OutboxMessage",
    "PasswordLink",
    "PolicyAct",
    "PromptAct",
    "ReviewTime",
    "SavedView",
    "SecondFactor",
    "SentNotice",
    "SlackRequest",
    "Subscription",
    "TimePreference",
    "Token",
    "ToolSchema",
    "VersionDecision",
    "VersionWithdrawal",
    "Vote",
]
