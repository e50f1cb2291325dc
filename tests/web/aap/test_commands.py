"""`manage.py instances` makes, lists and ends agents outside."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals.models import Instance
from approvals.people.instances import authenticate
from tests.support.commands import tried
from tests.web.aap.conftest import BODY, Desk, Door, code


def test_an_instance_is_made_listed_and_ended(desk: Desk) -> None:
    credential = tried("instances", "create", "Deploy bot", "--owner", "admin")[0].strip()
    instance = authenticate(credential)
    assert instance is not None
    bot = Door(credential)
    made = bot.ask()
    assert tried("instances", "list") == (f"{instance.id}\tadmin\tDeploy bot\n", "")
    assert "has ended" in tried("instances", "delete", instance.id)[0]
    assert tried("instances", "list") == ("", "")
    assert code(bot.send("POST", "/requests", BODY, "k")) == (401, "invalid_credential")
    assert desk.advance(made["id"]) == "cancelled"


def test_the_requests_of_a_disabled_owner_end_with_the_instance(desk: Desk) -> None:
    credential = tried("instances", "create", "Deploy bot", "--owner", "admin")[0].strip()
    made = Door(credential).ask()
    desk.advance(made["id"])
    User.objects.filter(username="admin").update(is_active=False)
    instance = Instance.objects.get()
    assert "cancelled: 1" in tried("instances", "delete", instance.id)[0]
    assert desk.approval(made["id"]).status == "cancelled"
    assert desk.advance(made["id"]) == "cancelled"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["create", "Bot", "--owner", "cyril"], "does not have the right"),
        (["create", "", "--owner", "admin"], "instance_name must have 1 to 100 characters"),
        (["create", "Bot", "--owner", "unknown"], "may not act"),
        (["delete", uuid4()], "There is no such instance"),
    ],
)
def test_a_refusal_is_one_line(desk: Desk, words: list[Any], reason: str) -> None:
    assert reason in tried("instances", *words)[1]
    assert not Instance.objects.exists()
