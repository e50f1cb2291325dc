"""Agents outside ask for approvals, use them once, and report what became of them."""

from tests.web.aap.conftest import BODY, Desk, Door, code


def test_a_request_is_approved_used_and_reported(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    assert {name: made[name] for name in BODY} == BODY
    assert made["status"] == "pending"
    assert "decision" not in made
    desk.decide(made["id"])
    approved = bot.read(made["id"])
    assert approved["status"] == approved["decision"]["status"] == "approved"
    used = bot.use(made["id"]).json()
    assert used["consumption"].keys() == {"consumed_at"}
    assert bot.report(made["id"], note="done").json()["consumption"]["outcome"]["note"] == "done"
    assert desk.advance(made["id"]) == "completed"
    assert code(bot.use(made["id"], key="other")) == (409, "already_consumed")
    assert bot.use(made["id"]).status_code == 200
