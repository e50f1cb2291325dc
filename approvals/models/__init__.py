"""Defines the tables of approvals, one module per noun. People and groups are Django's own."""

from approvals.models.accounts import (
    Absence,
    ApprovalUse,
    Assignment,
    DirectoryEntry,
    DirectoryToken,
    Instance,
    InstanceWebhook,
    LoginFailures,
    MappingAct,
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
    ApprovalClaim,
    ApprovalOutcome,
    ApprovalViewer,
    Comment,
    DailyDecisions,
    Handover,
    ReviewTime,
    ToolSchema,
    Vote,
)
from approvals.models.governance import (
    AllowanceAct,
    PolicyAct,
    PromptAct,
    VersionDecision,
    VersionWithdrawal,
)
from approvals.models.outbox import (
    NoticeChannel,
    NoticeTimes,
    OutboxMessage,
    SentNotice,
    SlackRequest,
    Subscription,
)
from approvals.models.signed import AuditEntry, AuditHead
