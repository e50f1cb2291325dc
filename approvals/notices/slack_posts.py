"""Keeps one message in Slack for each request and person, through the outbox.

The message of the outbox that posted it keeps the channel and the time stamp of the post as its answer. A trigger adds
an update when the request changes; it has the same subject, so it waits for the post, and shows the state at the time
it is sent. A sender that dies between Slack's answer and its record posts a second message.
"""

import json
from datetime import datetime, timedelta
from uuid import UUID, uuid4, uuid5

from approvals import clock
from approvals.errors import NotFound
from approvals.models import NoticeChannel, OutboxMessage
from approvals.notices import slack_cards
from approvals.notices.notice import Notice, content_of
from approvals.outbox import messages, slack
from approvals.outbox.messages import AttemptResult, Content
from approvals.people import slack_links
from approvals.reads import approval_views
from approvals.reads.approval_views import ApprovalView
from runtime.ports.access import Actor

POST, UPDATE, ANSWER = "slack.post", "slack.update", "slack.answer"  # also in the trigger
WINDOW = timedelta(days=1)  # of attempts; also in the trigger
_LANE = "slack"
_TOPIC = "slack "  # before the id of a request, as a destination; also in the trigger
_NAMES = UUID("5d1f3c0a-6a5e-4a43-9d5c-9e2a8f6b7c10")  # of the ids of posts
_GONE = ("message_not_found", "cant_update_message", "channel_not_found")


class SlackTransport:
    """Tells people in Slack: each request in a message of its own, anything else as text."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return a label: the user is always the one that the person has connected."""
        return {"address": "your Slack user"}

    def lane(self, channel: NoticeChannel) -> str:
        """Return the lane of all messages to Slack."""
        return _LANE

    def send(self, channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
        """Add the messages about requests to the outbox, or send the text."""
        person = channel.person.get_username()
        for request in notice.requests:
            post_request(person, UUID(request), message_id)
        if notice.requests:
            return AttemptResult(is_taken=True, text="ok")
        if (user := slack_links.user_of(person)) is None:
            return AttemptResult(is_taken=False, text="no Slack user is connected")
        card = slack_cards.build_text(f"{notice.title}\n{notice.text}")
        return _result(slack.call("chat.postMessage", {"channel": user, **card}))


def post_request(person: str, approval_id: UUID, notice: object) -> None:
    """Have a person told of a request in Slack, once for each notice."""
    message_id = uuid5(_NAMES, f"{approval_id} {person} {notice}")
    _add(POST, message_id, f"{_TOPIC}{approval_id}", person)


def answer(channel: str, user: str, text: str) -> None:
    """Have a text shown to a Slack user alone."""
    fields = {"channel": channel, "user": user, "text": slack_cards.escape(text)}
    _add(ANSWER, uuid4(), _TOPIC, json.dumps(fields))


class SlackMessages:
    """Sends messages to Slack. Each has its body from the beginning: an answer, or a person."""

    def compose(self, message: OutboxMessage) -> Content | datetime | None:
        """Return None: a message without a body is not ours."""
        return None

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Make one attempt. None if the person is not to be told any more."""
        if message.kind == ANSWER:
            return _result(slack.call("chat.postEphemeral", json.loads(str(message.body))))
        return _post(message) if message.kind == POST else _update(message)


KINDS = dict.fromkeys((POST, UPDATE, ANSWER), SlackMessages())


def _post(message: OutboxMessage) -> AttemptResult | None:
    """Post the request to the person, if they may decide it now and still want to hear here."""
    approval, user = _view(message), slack_links.user_of(str(message.body))
    card = _build_card(message, approval)
    if approval is None or user is None or card is None or not _waits(approval):
        return None
    reply = slack.call("chat.postMessage", {"channel": user, **card})
    return _result(reply, f"{reply.values.get('channel')} {reply.values.get('ts')}")


def _update(message: OutboxMessage) -> AttemptResult | None:
    """Show the present state in the message that was posted, if it is still there."""
    posts = OutboxMessage.objects.filter(
        destination=message.destination, kind=POST, ending=OutboxMessage.EndState.DELIVERED
    )
    post = posts.filter(subject=message.subject).first()
    if post is None:
        return None
    channel, ts = post.answer.split(" ")
    approval = _view(message)
    card = _build_card(message, approval) or slack_cards.build_card(None, None)
    reply = slack.call("chat.update", {"channel": channel, "ts": ts, **card})
    return None if reply.problem in _GONE else _result(reply)


def _result(reply: slack.SlackAnswer, text: str = "ok") -> AttemptResult:
    return AttemptResult(is_taken=not reply.problem, text=reply.problem or text, after=reply.after)


def _view(message: OutboxMessage) -> ApprovalView | None:
    """Return the request as the person in the body may read it; None if they may not."""
    approval_id = UUID(message.destination.removeprefix(_TOPIC))
    try:
        return approval_views.approval(approval_id, actor=Actor(person=str(message.body)))
    except NotFound:
        return None


def _build_card(message: OutboxMessage, approval: ApprovalView | None) -> slack_cards.Card | None:
    """Return the message as the person's channel may show it; None without a channel."""
    rows = NoticeChannel.objects.filter(kind=NoticeChannel.Kind.SLACK)
    channel = rows.filter(person__username=message.body).first()
    return None if channel is None else slack_cards.build_card(approval, content_of(channel))


def _waits(approval: ApprovalView) -> bool:
    is_over = approval.expires_at is not None and approval.expires_at <= clock.now()
    return approval.is_pending and approval.denial is None and not is_over


def _add(kind: str, message_id: UUID, destination: str, body: str) -> None:
    at = clock.now()
    times = {"occurred_at": at, "next_at": at, "gives_up_at": at + WINDOW}
    message = OutboxMessage(
        id=message_id,
        kind=kind,
        destination=destination,
        lane=_LANE,
        subject=f"slack {message_id}",
        body=body,
        **times,
    )
    messages.add([message])
