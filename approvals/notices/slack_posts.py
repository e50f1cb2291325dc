"""Keeps one message in Slack for each request and person, through the outbox, and writes it in Slack's Block Kit.

The message of the outbox that posted it keeps the channel and the time stamp of the post as its answer. A trigger adds
an update when the request changes; it has the same subject, so it waits for the post, and shows the state at the time
it is sent. A sender that dies between Slack's answer and its record posts a second message, with the same id in its
metadata.

Values of agents stand in `plain_text` objects alone, in which Slack reads no markup, each on one line. The buttons
decide the request with its digest, so they are there only if the message has all of the call.

Slack's Web API (https://docs.slack.dev) is not called with the package `slack_sdk`: its client has no limit for a whole
call and checks no address.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from django.conf import settings

from approvals import clock
from approvals.errors import NotFound
from approvals.models import NoticeChannel, OutboxMessage
from approvals.notices.notice import Notice, choose_detail, link, select_visible_arguments
from approvals.outbox import messages, webhook
from approvals.outbox.messages import AttemptResult, MessageKind
from approvals.people import sign_in
from approvals.reads import approval_views
from approvals.reads.approval_views import ApprovalView
from approvals.rules.policy import UNDOABLE
from runtime.control.edit import is_previewed
from runtime.core.values.limits import MAX_REASON
from runtime.core.values.texts import clean_text, write_on_one_line
from runtime.ports.access import Actor

Card = dict[str, Any]

MAX_TEXT = 2900  # characters; Slack takes 3000 in an object
MAX_ANSWER = 256 * 1024  # bytes; Slack repeats the message
BUTTONS = {"approve": ("Approve", "primary"), "deny": ("Deny", "danger")}
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)  # in which a space goes
_QUIET = {"parse": "none", "link_names": False, "unfurl_links": False, "unfurl_media": False}


def build_card(approval: ApprovalView | None, content: str | None) -> Card:
    """Return the message as its reader may see it now: with arguments and buttons while they may decide it.

    None is a request that they may not read any more, or without a channel. `content` is how much the channel shows.
    """
    if approval is None:
        return _message("You cannot read this request any more.")
    is_titled = content != NoticeChannel.Detail.NOTHING
    sentence = _write_sentence(approval) if is_titled else "A request waits for you"
    facts, buttons = [_build_plain_text(_describe_state(approval))], list[Card]()
    blocks = [_build_section(sentence), {"type": "context", "elements": facts}]
    if approval.is_pending and approval.denial is None:
        if (at := approval.expires_at) is not None:  # Slack shows it in the reader's time zone
            utc = f"Expires {at:%Y-%m-%d %H:%M} UTC"
            date = f"<!date^{int(at.timestamp())}^Expires {{date_short_pretty}} {{time}}|{utc}>"
            facts.append({"type": "mrkdwn", "text": date})
        has_arguments = approval.is_of_call and content == NoticeChannel.Detail.ARGUMENTS
        if has_arguments:
            blocks.append(_build_section(_write_arguments(approval)))
        if has_arguments and is_decidable(approval):
            field = {"type": "plain_text_input", "action_id": "reason", "max_length": MAX_REASON}
            label = {"label": _build_plain_text("Reason"), "optional": True}
            blocks.append({"type": "input", "block_id": "reason", "element": field, **label})
            value = f"{approval.id} {approval.digest}"
            buttons = [
                _build_button(name, text, style=style, value=value)
                for name, (text, style) in BUTTONS.items()
            ]
    buttons.append(_build_button("open", "Open", url=link(f"/a/{approval.id}/")))
    blocks.append({"type": "actions", "elements": buttons})
    return _message(f"{_describe_state(approval)}: {sentence}", *blocks)


def is_decidable(approval: ApprovalView) -> bool:
    """Tell whether the message decides it: a call at low or medium risk that the message has in full."""
    demands, app = approval.demands, settings.SIGNOFF_SLACK
    return (
        app is not None
        and app.decides
        and approval.is_of_call
        and not (demands is not None and demands.step_up)
        and approval.risk in UNDOABLE
        and not approval.holds
        and not is_previewed(approval.preview)
        and max(len(_write_sentence(approval)), len(_write_arguments(approval))) <= MAX_TEXT
    )


def escape(text: str) -> str:
    """Escape a text for a field in which Slack reads markup: no mention and no link is left in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _message(text: str, *blocks: Card) -> Card:
    return {"text": escape(text), "blocks": blocks, **_QUIET}


def _write_sentence(approval: ApprovalView) -> str:
    """Return the sentence of a request. A question is an agent's own text, which stays on its page."""
    return "An agent asks a question" if approval.is_question else _break_links(approval.sentence)


def _describe_state(approval: ApprovalView) -> str:
    if not approval.is_pending:
        word = approval.status.capitalize()
        return f"{word} by {approval.decided_by}" if approval.decided_by else word
    votes = f" · {len(approval.voted)} of {approval.quorum} approved" if approval.voted else ""
    label = "In doubt" if approval.is_in_doubt else f"{approval.risk.capitalize()} risk"
    return f"{label} · for {approval.requester}{votes}"


def _write_arguments(approval: ApprovalView) -> str:
    """Write the visible arguments, one on a line."""
    args = select_visible_arguments(approval.tool, approval.args, approval.schema or {})
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in args.items()]
    return "\n".join(map(_break_links, lines)) or "No arguments"


def _break_links(text: str) -> str:
    return _LINK.sub(" ", write_on_one_line(text))


def _build_plain_text(text: str) -> Card:
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… Open it for the rest."
    return {"type": "plain_text", "text": text, "emoji": False}


def _build_section(text: str) -> Card:
    return {"type": "section", "text": _build_plain_text(text)}


def _build_button(name: str, text: str, **fields: str) -> Card:
    return {"type": "button", "action_id": name, "text": _build_plain_text(text), **fields}


POST, UPDATE = "slack.post", "slack.update"  # also in the trigger
_TOPIC = "slack "  # before the id of a request, as a destination; also in the trigger
_NAMES = UUID("5d1f3c0a-6a5e-4a43-9d5c-9e2a8f6b7c10")  # of the ids of posts
_GONE = ("message_not_found", "cant_update_message", "channel_not_found")


def send_notice(channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
    """Tell a person in Slack: add the messages about requests to the outbox, or send anything else as text."""
    person = channel.person.get_username()
    for request in notice.requests:
        post_request(person, UUID(request), message_id)
    if notice.requests:
        return AttemptResult(is_taken=True, text="ok")
    if (user := sign_in.find_slack_user(person)) is None:
        return AttemptResult(text="no Slack user is connected")
    return _send(user, _message(f"{notice.title}\n{notice.text}"), message_id)[0]


def post_request(person: str, approval_id: UUID, notice: object) -> None:
    """Have a person told of a request in Slack, once for each notice."""
    message_id = uuid5(_NAMES, f"{approval_id} {person} {notice}")
    message = OutboxMessage(
        id=message_id,
        kind=POST,
        destination=f"{_TOPIC}{approval_id}",
        lane=NoticeChannel.Kind.SLACK,
        subject=f"slack {message_id}",
        body=person,
    )
    messages.add_whole(message)


class SlackMessages(MessageKind):
    """Sends messages to Slack. The body of each is a person."""

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Make one attempt. None if the person is not to be told any more."""
        channels = NoticeChannel.objects.filter(kind=NoticeChannel.Kind.SLACK)
        channel = channels.filter(person__username=message.body).first()
        content, approval = None, None
        if channel is not None:
            content = choose_detail(channel)
            with suppress(NotFound):  # the person may not read it any more
                approval_id = UUID(message.destination.removeprefix(_TOPIC))
                actor = Actor(person=str(message.body))
                approval = approval_views.read_approval(approval_id, actor=actor)
        return (_post if message.kind == POST else _update)(message, approval, content)


KINDS = dict.fromkeys((POST, UPDATE), SlackMessages())


def _post(
    message: OutboxMessage, approval: ApprovalView | None, content: str | None
) -> AttemptResult | None:
    """Post the request to the person, if they may decide it now and still want to hear here."""
    user = sign_in.find_slack_user(str(message.body))
    if approval is None or user is None:
        return None
    is_over = approval.expires_at is not None and approval.expires_at <= clock.read_time()
    if not approval.is_pending or approval.denial is not None or is_over:
        return None
    result, values = _send(user, build_card(approval, content), message.id)
    post = f"{values.get('channel')} {values.get('ts')}"
    return replace(result, text=post) if result.is_taken else result


def _update(
    message: OutboxMessage, approval: ApprovalView | None, content: str | None
) -> AttemptResult | None:
    """Show the present state in the message that was posted, if it is still there."""
    posts = OutboxMessage.objects.filter(
        destination=message.destination, kind=POST, ending=OutboxMessage.EndState.DELIVERED
    )
    post = posts.filter(subject=message.subject).first()
    if post is None:
        return None
    channel, ts = post.answer.split(" ")
    fields = {"channel": channel, "ts": ts, **build_card(approval, content)}
    result, _ = call("chat.update", fields)
    return None if result.text in _GONE else result


def _send(user: str, card: Card, message_id: UUID) -> tuple[AttemptResult, Mapping[str, Any]]:
    metadata = {"event_type": "signoff_message", "event_payload": {"id": str(message_id)}}
    return call("chat.postMessage", {"channel": user, "metadata": metadata, **card})


def call(
    method: str, fields: Mapping[str, Any], *, seconds: float | None = None
) -> tuple[AttemptResult, Mapping[str, Any]]:
    """Call a method of Slack once. Return whether Slack took it, or why not, and the values of its answer."""
    app = settings.SIGNOFF_SLACK
    assert app is not None  # as a message for Slack exists
    reply = webhook.send_request(
        f"{app.url}/{method}",
        {
            "Content-Type": "application/json; charset=utf-8",
            "Authorization": f"Bearer {app.token}",
        },
        json.dumps(fields).encode(),
        seconds=seconds,
        max_bytes=MAX_ANSWER,
        internal=True,
    )
    if reply.status != 200:
        return replace(reply, is_taken=False), {}
    try:
        values = json.loads(reply.body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return AttemptResult(text="no answer"), {}
    is_taken = values.get("ok") is True
    text = "ok" if is_taken else clean_text(str(values.get("error")))
    return AttemptResult(is_taken=is_taken, text=text), values
