"""Clauses of the protocol's list for providers: the form of each answer in each state, waits, keys and scopes."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

from runtime.web.api.runs import WAIT_HEADER
from tests.web.aap.conftest import BODY, Desk, Door, code, wait_for

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
ALWAYS = {"id", "status", "created_at", "deadline_at"}
ENDED = {"approved", "denied", "expired", "cancelled"}


def values_of(document: Any) -> list[Any]:
    if isinstance(document, dict):
        return [value for part in document.values() for value in values_of(part)]
    return [document]


def check(request: dict[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """Check what the client of the protocol checks: fields, times in one form and in order, and no null."""
    status, decision = request["status"], request.get("decision")
    consumption = request.get("consumption")
    UUID(request["id"])
    assert {name: request[name] for name in sent} == sent
    more = {name for name in ("decision", "consumption") if name in request}
    assert request.keys() == ALWAYS | sent.keys() | more
    assert (decision is not None) is (status in ENDED)
    times = [request["created_at"]]
    if decision is not None:
        assert decision["status"] == status
        assert ("expires_at" in decision) is (status == "approved")
        assert decision.keys() <= {"status", "decided_at", "expires_at", "note"}
        assert decision.get("note") != ""
        times.append(decision["decided_at"])
    if consumption is not None:
        assert status == "approved"
        assert consumption.keys() <= {"consumed_at", "outcome"}
        times.append(consumption["consumed_at"])
        if "outcome" in consumption:
            outcome = consumption["outcome"]
            assert outcome.keys() <= {"status", "reported_at", "note"}
            times.append(outcome["reported_at"])
    assert all(one <= other for one, other in pairwise(times))
    assert request["created_at"] < request["deadline_at"]
    if decision is not None and status == "approved":
        assert decision["decided_at"] < decision["expires_at"]
        times.append(decision["expires_at"])
    assert [text for text in (*times, request["deadline_at"]) if not TIME.fullmatch(text)] == []
    assert None not in values_of(request)
    return request


def test_every_state_has_the_form_of_the_protocol(bot: Door, desk: Desk) -> None:
    least = {"tool": "deploy", "arguments": {}, "timeout": "10m"}
    made = check(bot.ask(least), least)
    assert (made["status"], "decision" in made) == ("pending", False)
    desk.decide(made["id"])
    assert "consumption" not in check(bot.read(made["id"]), least)
    assert "outcome" not in check(bot.use(made["id"]).json(), least)["consumption"]
    reported = check(bot.report(made["id"], note="done").json(), least)
    assert reported["consumption"]["outcome"]["note"] == "done"
    fixed = ("id", "created_at", "deadline_at")
    assert [made[name] for name in fixed] == [reported[name] for name in fixed]
    assert desk.advance(made["id"]) == "completed"


def test_each_end_has_the_form_of_the_protocol(bot: Door, desk: Desk) -> None:
    short = {**BODY, "timeout": "1s", "server": "mcp"}
    expired, cancelled, denied = bot.ask(short), bot.ask(), bot.ask()
    bot.send("DELETE", f"/requests/{cancelled['id']}")
    desk.decide(denied["id"], "deny", "no")
    wait_for(expired["deadline_at"])
    for made, sent, status in (
        (expired, short, "expired"),
        (cancelled, BODY, "cancelled"),
        (denied, BODY, "denied"),
    ):
        request = check(bot.read(made["id"]), sent)
        assert request["status"] == status
        assert code(bot.use(made["id"])) == (409, "not_approved")
        assert code(bot.report(made["id"])) == (409, "not_consumed")
        cancel = bot.send("DELETE", f"/requests/{made['id']}")
        if status == "cancelled":
            assert cancel.json() == request
        else:
            assert code(cancel) == (409, "already_terminal")
        assert bot.read(made["id"]) == request
    assert request["decision"]["note"] == "no"
    assert desk.advance(denied["id"]) == "completed"


def test_a_pending_request_is_held_for_the_time_asked_thirty_seconds_at_most(
    bot: Door, desk: Desk
) -> None:
    """The server in front holds the answer that has this header, until the request ends."""
    path = f"/requests/{bot.ask()['id']}"
    for wait, held in (("25s", "unmet; 25s"), ("1s", "unmet; 1s"), ("2h", "unmet; 30s")):
        answer = bot.send("GET", f"{path}?wait={wait}")
        assert (answer.status_code, answer.json()["status"]) == (200, "pending")
        assert answer[WAIT_HEADER] == held
    assert WAIT_HEADER not in bot.send("GET", path)
    for wrong in ("0s", "25", "1d", "", "-1s", "1.5s"):
        assert code(bot.send("GET", f"{path}?wait={wrong}"))[0] == 400
    assert code(bot.send("GET", f"{path}?until=ended")) == (400, "unknown_parameter")
    bot.send("DELETE", path)
    assert WAIT_HEADER not in bot.send("GET", f"{path}?wait=25s")


def test_a_key_is_needed_where_the_protocol_says(bot: Door, desk: Desk, provisioner: Door) -> None:
    made = bot.ask()["id"]
    desk.decide(made)
    instance = provisioner.send("POST", "/instances", {}, "k").json()["instance"]["id"]
    for door, method, path, body in (
        (bot, "POST", "/requests", BODY),
        (bot, "POST", f"/requests/{made}/consume", None),
        (provisioner, "POST", "/instances", {}),
        (provisioner, "PATCH", f"/instances/{instance}", {"instance_name": "New"}),
    ):
        assert code(door.send(method, path, body)) == (400, "missing_idempotency_key")
        for wrong in ("x" * 256, "a b"):
            assert code(door.send(method, path, body, wrong)) == (400, "invalid_idempotency_key")
    assert bot.use(made).status_code == 200  # nothing of that used it


def test_a_key_counts_for_its_instance_and_its_operation(
    bot: Door, provision: Callable[[str], Door], desk: Desk, provisioner: Door
) -> None:
    key = str(uuid4())
    made, other = bot.ask(key=key)["id"], provision("Other").ask(key=key)["id"]
    assert made != other
    desk.decide(made)
    assert bot.use(made, key).status_code == 200
    assert bot.ask(key=key)["status"] == "approved"
    assert provisioner.send("POST", "/instances", {}, key).status_code == 201


def test_every_answer_names_its_request(bot: Door, desk: Desk) -> None:
    made = bot.ask()["id"]
    answers = [
        bot.send("GET", f"/requests/{made}"),
        bot.send("DELETE", f"/requests/{made}"),
        bot.use(made),
        bot.send("GET", "/nothing"),
        Door("x").send("GET", f"/requests/{made}"),
    ]
    ids = {str(UUID(answer["X-Request-ID"])) for answer in answers}
    assert len(ids) == len(answers)
    types = ("conflict", "not_found", "authentication")
    assert [answer.json()["error"]["type"] for answer in answers[2:]] == list(types)
    assert all("trace" not in answer.content.decode().lower() for answer in answers)
