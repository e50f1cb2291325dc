"""Writes the message about a request in Slack's Block Kit.

Values of agents stand in `plain_text` objects alone, in which Slack reads no markup, each on one line. The buttons
decide the request with its digest, so they are there only if the message has all of the call.
"""

import json
import re
from typing import Any

from django.conf import settings

from approvals.models import NoticeChannel
from approvals.outbox import slack
from approvals.reads.approval_views import ApprovalView
from approvals.rules.roles import UNDOABLE
from runtime.control.edit import is_previewed
from runtime.core.values import json_schema
from runtime.core.values.limits import MAX_REASON
from runtime.core.values.texts import write_on_one_line
from runtime.keyring import sealing

Card = dict[str, Any]

MAX_TEXT = 2900  # characters; Slack takes 3000 in an object
BUTTONS = {"approve": ("Approve", "primary"), "deny": ("Deny", "danger")}
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # in which a space goes
_QUIET = {"parse": "none", "link_names": False, "unfurl_links": False, "unfurl_media": False}


def build_card(approval: ApprovalView | None, content: str | None) -> Card:
    """Return the message as its reader may see it now: with arguments and buttons while they may decide it.

    None is a request that they may not read any more. `content` is how much the channel shows.
    """
    if approval is None:
        return build_text("You cannot read this request any more.")
    sentence = "A request waits for you"
    if content != NoticeChannel.Detail.NOTHING:
        sentence = _sentence(approval)
    facts, buttons = [_plain(_state(approval))], list[Card]()
    blocks = [_section(sentence), {"type": "context", "elements": facts}]
    if approval.is_pending and approval.denial is None:
        facts += _deadline(approval)
        has_arguments = approval.is_of_call and content == NoticeChannel.Detail.ARGUMENTS
        if has_arguments:
            blocks.append(_section(_arguments(approval)))
        if has_arguments and is_decidable(approval):
            value = f"{approval.id} {approval.digest}"
            buttons = [
                _button(name, text, style=style, value=value)
                for name, (text, style) in BUTTONS.items()
            ]
    buttons.append(_button("open", "Open", url=page_of(approval.id)))
    blocks.append({"type": "actions", "elements": buttons})
    return _message(f"{_state(approval)}: {sentence}", blocks)


def build_text(text: str) -> Card:
    """Return a message of our own words."""
    return _message(text, [])


def is_decidable(approval: ApprovalView) -> bool:
    """Tell whether the message decides it: a call at low or medium risk that the message has in full."""
    demands = approval.demands
    return (
        slack.app().decides
        and approval.is_of_call
        and not (demands is not None and demands.step_up)
        and approval.risk in UNDOABLE
        and not approval.holds
        and not is_previewed(approval.preview)
        and max(len(_sentence(approval)), len(_arguments(approval))) <= MAX_TEXT
    )


def needs_reason(approval: ApprovalView, verdict: str) -> bool:
    """Tell whether a person must give a reason for this verdict."""
    demands = approval.demands
    return verdict == "deny" or (demands is not None and demands.reason)


def build_window(approval: ApprovalView, verdict: str, context: str) -> Card:
    """Return the window that asks for a reason. It sends `context` back."""
    answer = {"type": "plain_text_input", "action_id": "reason", "multiline": True}
    question = {
        "type": "input",
        "block_id": "reason",
        "label": _plain("Reason"),
        "element": answer | {"max_length": MAX_REASON},
    }
    return {
        "type": "modal",
        "title": _plain("Signoff"),
        "submit": _plain(BUTTONS[verdict][0]),
        "callback_id": verdict,
        "private_metadata": context,
        "blocks": [_section(_sentence(approval)), question],
    }


def escape(text: str) -> str:
    """Escape a text for a field in which Slack reads markup: no mention and no link is left in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def page_of(approval_id: object) -> str:
    """Return the address of the page of a request."""
    return f"{settings.PUBLIC_URL}/a/{approval_id}/"


def _message(text: str, blocks: list[Card]) -> Card:
    return {"text": escape(text), "blocks": blocks, **_QUIET}


def _sentence(approval: ApprovalView) -> str:
    """Return the sentence of a request. A question is an agent's own text, which stays on its page."""
    return "An agent asks a question" if approval.is_question else _visible(approval.sentence)


def _state(approval: ApprovalView) -> str:
    if not approval.is_pending:
        word = approval.status.capitalize()
        return f"{word} by {approval.decided_by}" if approval.decided_by else word
    votes = f" · {len(approval.voted)} of {approval.quorum} approved" if approval.voted else ""
    label = "In doubt" if approval.is_in_doubt else f"{approval.risk.capitalize()} risk"
    return f"{label} · for {approval.requester}{votes}"


def _deadline(approval: ApprovalView) -> list[Card]:
    """Write the deadline, which Slack shows in the reader's time zone."""
    at = approval.expires_at
    if at is None:
        return []
    utc = f"Expires {at:%Y-%m-%d %H:%M} UTC"
    text = f"<!date^{int(at.timestamp())}^Expires {{date_short_pretty}} {{time}}|{utc}>"
    return [{"type": "mrkdwn", "text": text}]


def _arguments(approval: ApprovalView) -> str:
    """Write the arguments, one on a line: without those that are secret by their seal or the schema, or held."""
    args = sealing.redacted_args(approval.tool, approval.args)
    secret = json_schema.write_only(approval.schema or {})
    lines = [
        f"{name}: {sealing.REDACTED if name in secret else json.dumps(value, ensure_ascii=False)}"
        for name, value in (args if isinstance(args, dict) else {"arguments": args}).items()
    ]
    return "\n".join(map(_visible, lines)) or "No arguments"


def _visible(text: str) -> str:
    return _LINK.sub(" ", write_on_one_line(text))


def _plain(text: str) -> Card:
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… Open it for the rest."
    return {"type": "plain_text", "text": text, "emoji": False}


def _section(text: str) -> Card:
    return {"type": "section", "text": _plain(text)}


def _button(name: str, text: str, **fields: str) -> Card:
    return {"type": "button", "action_id": name, "text": _plain(text), **fields}
