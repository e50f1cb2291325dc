"""Reads the past calls of tools that a person may read, and finds the odd values of requests beside them.

One query reads the newest approvals of every tool in question, so an inbox of any length costs one. The rows are
an aid for reading and are not verified: a program that writes to Postgres can hide an oddity, but not change an action.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from approvals.models import Approval
from approvals.reads.approval_views import ApprovalView
from approvals.rights import approval_rights
from approvals.rights.principals import Principal
from approvals.rules.argument_values import PastValues, learn
from approvals.rules.unusual_values import UnusualKind, UnusualValue, find_unusual_values
from runtime.keyring import sealing
from runtime.reads import time_limits
from runtime.store.pool import Connection

DAYS = 90
MAX_PAST = 200  # newest approvals of one tool
MIN_PAST = 40  # of each tool where a page has many
MAX_READ = 2_000  # approvals that one page reads
MAX_BYTES = 8_192  # of the arguments of one approval; longer ones are left out
ROW_CHARACTERS = 4_000  # of a row that are searched for invisible characters

# Calls that an allowance passed are left out: no person saw them, and they would move the range that guards it.
# First the newest of a tool, then those among them that the person may read: so no number of others costs more.
PAST = f"""
    SELECT past.* FROM unnest(%(tools)s::text[], %(limits)s::int[]) AS asked(tool, most), LATERAL (
        SELECT id, tool, requester, risk, readers, decided_by, voted, removed_at,
            CASE WHEN octet_length(coalesce(edited, args)) <= {MAX_BYTES}
                THEN coalesce(edited, args) ELSE '' END AS args
        FROM approvals_approval
        WHERE approvals_approval.tool = asked.tool AND status = 'approved' AND kind = 'approval'
            AND allowance IS NULL
            AND decided_at >= %(since)s AND decided_at < %(before)s
        ORDER BY decided_at DESC LIMIT asked.most
    ) past
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualByApproval:
    """The oddities of each request. `left_out` says that the page took too long to look at all of them.

    `past` are the past calls that were asked for besides.
    """

    by_request: dict[UUID, tuple[UnusualValue, ...]]
    left_out: bool = False
    past: PastValues | None = None

    @property
    def flags(self) -> dict[UUID, list[UnusualValue]]:
        """The oddities that a row of a list shows; it describes look-alike letters anyway."""
        return {
            approval_id: [oddity for oddity in oddities if not oddity.is_shown_elsewhere]
            for approval_id, oddities in self.by_request.items()
        }


def read_histories(
    tools: Collection[str],
    principal: Principal | None,
    *,
    before: datetime | None = None,
    main_tool: str = "",
) -> dict[str, PastValues]:
    """Return the past calls of each tool among those that this person may read, until `before` or now.

    Many tools have fewer calls each, except the main one.
    """
    names = sorted({*tools, *([main_tool] if main_tool else [])})
    if not names or principal is None:
        return dict.fromkeys(names, learn(()))
    end = before or timezone.now()
    limit = min(MAX_PAST, max(MIN_PAST, MAX_READ // len(names)))
    rows = Approval.objects.raw(
        PAST,
        {
            "tools": names,
            "since": end - timedelta(days=DAYS),
            "before": end,
            "limits": [MAX_PAST if name == main_tool else limit for name in names],
        },
    )
    calls: dict[str, list[Any]] = {name: [] for name in names}
    for approval in rows:
        time_limits.check()
        if (
            approval.args
            and approval.removed_at is None
            and approval_rights.may_read_request(principal, approval)
        ):
            calls[approval.tool] += _decode_arguments(approval.tool, approval.args)
    return {name: learn(arguments) for name, arguments in calls.items()}


def read_history_for_worker(connection: Connection, tool: str) -> PastValues:
    """Return the past calls of a tool for a worker, which compares with all of them and shows none."""
    end = timezone.now()
    rows = connection.execute(
        PAST,
        {"tools": [tool], "since": end - timedelta(days=DAYS), "before": end, "limits": [MAX_PAST]},
    )
    calls = list[Any]()
    for *_, removed_at, args in rows.fetchall():
        if args and removed_at is None:
            calls += _decode_arguments(tool, args)
    return learn(calls)


def find_unusual_in_list(
    items: Iterable[ApprovalView],
    principal: Principal | None,
    *,
    limit: int | None = ROW_CHARACTERS,
    page_request: ApprovalView | None = None,
) -> UnusualByApproval:
    """Find the odd values of the pending calls of a list, in one query. `limit` is as in `find_unusual_in_request`.

    The query also reads the past calls for the request of the page, if it is pending.
    """
    calls = [approval for approval in items if approval.is_of_call and approval.status == "pending"]
    if not calls:
        return UnusualByApproval(by_request={})
    if time_limits.is_used_up():
        return UnusualByApproval(by_request={}, left_out=True)
    main_tool = (
        page_request.tool
        if page_request and page_request.is_of_call and page_request.status == "pending"
        else ""
    )
    past = read_histories([approval.tool for approval in calls], principal, main_tool=main_tool)
    by_request = dict[UUID, tuple[UnusualValue, ...]]()
    for approval in calls:
        if time_limits.is_used_up():
            return UnusualByApproval(by_request=by_request, left_out=True, past=past.get(main_tool))
        by_request[approval.id] = find_unusual_in_request(
            approval, past[approval.tool], limit=limit
        )
    return UnusualByApproval(by_request=by_request, past=past.get(main_tool))


def find_unusual_in_request(
    approval: ApprovalView, history: PastValues, *, limit: int | None = None
) -> tuple[UnusualValue, ...]:
    """Find the odd values of one request. Arguments that its tool has no more are not missed."""
    if approval.tampered or approval.removed_at:
        return ()
    bound = {} if limit is None else {"limit": limit}
    return without_dropped(find_unusual_values(approval.args, history, **bound), approval.schema)


def without_dropped(oddities: Iterable[UnusualValue], schema: Any) -> tuple[UnusualValue, ...]:
    """Leave out missing arguments that the tool has no more."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return tuple(
        oddity
        for oddity in oddities
        if oddity.kind is not UnusualKind.UNSET
        or not isinstance(properties, dict)
        or oddity.argument in properties
    )


def find_unusual_at_decision(approval: ApprovalView) -> tuple[UnusualValue, ...]:
    """Find the odd values of one request of any kind or status, beside the calls before its decision."""
    if not approval.is_of_call:
        return ()
    return find_unusual_in_request(approval, read_history_before(approval))


def read_history_before(approval: ApprovalView) -> PastValues:
    """Return the past calls of an approval's tool, from before its decision, that its reader may read."""
    return read_histories([approval.tool], approval.reader, before=approval.decided_at)[
        approval.tool
    ]


def find_unusual_in_edit(approval: ApprovalView, args: Any) -> tuple[UnusualValue, ...]:
    """Find the odd values of the arguments with which a reviewer edits a call."""
    tool = approval.tool
    redacted = sealing.redact_args(tool, args)
    return without_dropped(
        find_unusual_values(redacted, read_histories([tool], approval.reader)[tool]),
        approval.schema,
    )


def group_by_argument(oddities: Iterable[UnusualValue]) -> dict[str, list[UnusualValue]]:
    """Return the oddities of each argument, for the place beside its value."""
    groups = dict[str, list[UnusualValue]]()
    for oddity in oddities:
        groups.setdefault(oddity.argument, []).append(oddity)
    return groups


def _decode_arguments(tool: str, args: str) -> list[Any]:
    """Return the arguments of a call without its secrets; nothing if they are no JSON."""
    try:
        return [sealing.redact_args(tool, json.loads(args))]
    except (ValueError, RecursionError):
        return []
