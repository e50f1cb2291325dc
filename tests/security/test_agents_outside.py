"""Agents outside: no credential does more than its own, none decides, and their texts stay texts (A6, A7, A12, A19)."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalUse, Instance
from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from tests.browser.test_hostile_text import strings
from tests.support.pages import log_in, text
from tests.support.seeds import Cast
from tests.web.aap.conftest import BODY, Desk, Door, bot, code, desk, provision, provisioner
from tests.web.matrix import ROWS

__all__ = ["bot", "desk", "provision", "provisioner"]

# They move or hide the text beside them, so no page may have them.
MOVERS = frozenset("\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x1b")
TEXTS = 80


def of_requests(door: Door, request: str) -> Iterator[Any]:
    """The answers to one caller at every route of a request."""
    yield door.send("GET", f"/requests/{request}")
    yield door.send("DELETE", f"/requests/{request}")
    yield door.use(request)
    yield door.report(request)


def test_no_other_credential_reaches_a_request(
    bot: Door, desk: Desk, provision: Callable[[str], Door], provisioner: Door, cast: Cast
) -> None:
    pending, approved = bot.ask()["id"], bot.ask()["id"]
    desk.decide(approved)
    ended = provision("Ended bot")
    instance = Instance.objects.get(name="Ended bot")
    assert provisioner.send("DELETE", f"/instances/{instance.id}").status_code == 204
    _, of_reviewer = tokens.create(cast.bea, ALL_SCOPES)
    for door, expected in (
        (provision("Other bot"), (404, "not_found")),
        (provisioner, (403, "wrong_credential")),
        (Door(of_reviewer), (403, "wrong_credential")),
        (ended, (401, "invalid_credential")),
        (Door(""), (401, "invalid_credential")),
    ):
        if expected[0] != 404:
            assert code(door.send("POST", "/requests", BODY, "k")) == expected
        for request in (pending, approved):
            assert {code(answer) for answer in of_requests(door, request)} == {expected}
    assert code(bot.send("POST", "/instances", {}, "k")) == (403, "wrong_credential")
    assert not ApprovalUse.objects.exists()
    assert (bot.read(pending)["status"], bot.read(approved)["status"]) == ("pending", "approved")


def test_a_replayed_use_gives_nothing_new(bot: Door, desk: Desk) -> None:
    """The same key gets the same answer, any other none; and no answer moves the end of the approval."""
    request = bot.ask()["id"]
    desk.decide(request)
    approved = bot.read(request)
    used = bot.use(request, "k").json()
    assert used["decision"] == approved["decision"]
    for _ in range(2):
        assert bot.use(request, "k").json() == used
        assert code(bot.use(request, str(uuid4()))) == (409, "already_consumed")
    bot.report(request)
    desk.advance(request)
    again = bot.use(request, "k").json()
    assert again["consumption"]["consumed_at"] == used["consumption"]["consumed_at"]
    assert again["decision"] == approved["decision"]
    assert ApprovalUse.objects.count() == 1


def test_a_request_is_not_changed_after_it_was_asked(bot: Door, desk: Desk) -> None:
    made = bot.ask(key="k")
    for method in ("PUT", "PATCH", "POST"):
        answer = bot.send(method, f"/requests/{made['id']}", {**BODY, "tool": "drop"}, "k")
        assert code(answer) == (405, "method_not_allowed")
    changes: list[dict[str, Any]] = [{"tool": "drop"}, {"arguments": {}}, {"server": "x"}]
    for changed in changes:
        answer = bot.send("POST", "/requests", {**BODY, **changed}, "k")
        assert code(answer) == (409, "idempotency_conflict")
    assert bot.read(made["id"]) == made


def test_a_credential_opens_nothing_of_the_api(bot: Door, desk: Desk) -> None:
    """So it does not decide, nor read what people write."""
    client = Client(headers={"authorization": bot.client.defaults["HTTP_AUTHORIZATION"]})
    rows = [row for row in ROWS if row.path.startswith("/api/v1/") and row.cells["anon"] == "in"]
    rows = [row for row in rows if row.is_api and "{hook}" not in row.path]
    assert len(rows) > 50
    ids: dict[str, Any] = defaultdict(uuid4, event=1, position=1)
    numbers: dict[str, Any] = defaultdict(lambda: 1)
    for row in rows:  # an address that takes numbers is not one with an id
        found = {
            client.generic(row.method, row.path.format_map(places), "{}", "application/json")
            for places in (ids, numbers)
        }
        assert {answer.status_code for answer in found} in ({401}, {401, 404}), row.path


def test_hostile_texts_of_agents_outside_stay_text(bot: Door, desk: Desk, cast: Cast) -> None:
    texts = strings(TEXTS)
    requests = []
    for tool, argument, reasoning, framework, more in zip(*[iter(texts)] * 5, strict=True):
        body = {
            "tool": tool,
            "server": more,
            "arguments": {argument: reasoning, "text": argument, "list": [more]},
            "agent_reasoning": reasoning,
            "context": {"framework": framework, "call_id": argument, reasoning: more},
            "timeout": "10m",
        }
        requests.append(bot.ask(body)["id"])
        desk.advance(requests[-1])
    bea, admin = log_in(cast.bea), log_in(cast.admin)
    pages = [text(bea, "/inbox/"), text(admin, "/instances/")]
    for request in requests:
        pages += [text(bea, f"/a/{desk.approval(request).id}/"), text(admin, f"/runs/{request}/")]
    marked = [hostile for hostile in texts if "<" in hostile]
    for page in pages:
        assert [hostile for hostile in marked if hostile in page or hostile[6:] in page] == []
        assert MOVERS & set(page) == set()
    assert all(any(hostile[:5] in page for page in pages) for hostile in texts)


@pytest.mark.parametrize("more", [20])
def test_the_protocol_costs_the_same_beside_any_number_of_requests(
    bot: Door, desk: Desk, provisioner: Door, more: int
) -> None:
    def costs() -> dict[str, int]:
        counted: dict[str, int] = {}

        def count(name: str, answer: Callable[[], Any]) -> Any:
            with CaptureQueriesContext(connection) as made:
                result = answer()
            counted[name] = len(made)
            return result

        key = str(uuid4())
        request = count("create", lambda: bot.ask(key=key))["id"]
        count("create again", lambda: bot.ask(key=key))
        count("read", lambda: bot.read(request))
        desk.decide(request)
        count("consume", lambda: bot.use(request))
        count("consume again", lambda: bot.use(request))
        count("outcome", lambda: bot.report(request))
        other = bot.ask()["id"]
        count("cancel", lambda: bot.send("DELETE", f"/requests/{other}"))
        made = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, key).json()
        path = f"/instances/{made['instance']['id']}"
        count("find", lambda: provisioner.send("GET", path))
        count("rename", lambda: provisioner.send("PATCH", path, {"instance_name": "New"}, key))
        return counted

    costs()  # the first request of an instance records when it asked
    first = costs()
    for _ in range(more):
        bot.ask()
    assert costs() == first
    assert max(first.values()) <= 40
