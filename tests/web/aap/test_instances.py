"""People provision the instances of agents outside; each has a credential that is good for its requests alone."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.test import Client

from approvals.models import AuditEntry, Instance, Token
from approvals.people import accounts, instances, tokens
from approvals.people.accounts import set_groups
from approvals.people.instances import authenticate
from approvals.rights.principals import ALL_SCOPES, Scope
from approvals.rules.policy import Group
from tests.support.api_client import Caller, field_of
from tests.support.commands import tried
from tests.support.pages import has, log_in, queries_at_most, shows, text, text_of
from tests.support.seeds import Cast
from tests.support.threads import together
from tests.web.aap.conftest import BODY, Desk, Door, code


def test_an_instance_is_made_read_renamed_and_deleted(provisioner: Door) -> None:
    made = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert made.status_code == 201
    instance = made.json()["instance"]
    path = f"/instances/{instance['id']}"
    again = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert (again.status_code, again.json()) == (200, made.json())
    conflict = provisioner.send("POST", "/instances", {"instance_name": "Other"}, "k")
    assert code(conflict) == (409, "idempotency_conflict")
    assert provisioner.send("GET", path).json() == {"instance": instance}
    renamed = provisioner.send("PATCH", path, {"instance_name": "New"}, "p")
    assert renamed.json()["instance"]["name"] == "New"
    provisioner.send("PATCH", path, {"instance_name": "Newer"}, "q")
    repeated = provisioner.send("PATCH", path, {"instance_name": "New"}, "p")
    assert repeated.json() == renamed.json()  # the first answer, and nothing changed
    assert provisioner.send("GET", path).json()["instance"]["name"] == "Newer"
    assert code(provisioner.send("PATCH", path, {}, "r")) == (400, "missing_field")
    assert provisioner.send("DELETE", path).status_code == 204
    assert provisioner.send("DELETE", path).status_code == 204
    for method, body in (("GET", None), ("PATCH", {"instance_name": "X"})):
        assert code(provisioner.send(method, path, body, "s")) == (404, "not_found")
    gone = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert code(gone) == (409, "instance_deleted")
    assert code(Door(made.json()["credential"]["token"]).send("GET", "/requests/x"))[0] == 401


def test_a_change_is_remembered_until_many_came_after_it(
    provisioner: Door, bot: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MAX_UPDATES", 2)
    path = f"/instances/{Instance.objects.get().id}"
    for name in "abc":
        provisioner.send("PATCH", path, {"instance_name": name}, name)
    assert len(Instance.objects.get().updates) == 2
    for name, is_made in (("b", False), ("a", True)):
        provisioner.send("PATCH", path, {"instance_name": name}, name)
        assert (Instance.objects.get().name == name) is is_made


def test_asking_and_deleting_at_once_leaves_nothing_that_waits(
    provisioner: Door, bot: Door, desk: Desk
) -> None:
    path = f"/instances/{Instance.objects.get().id}"
    answers: list[Any] = []

    def ask() -> None:
        answers.append(bot.send("POST", "/requests", {**BODY}, str(uuid4())))

    together([ask, ask, lambda: provisioner.send("DELETE", path), ask])
    for answer in answers:
        if answer.status_code == 201:
            assert desk.advance(answer.json()["id"]) == "cancelled"


def test_instances_of_another_person_are_not_there(provisioner: Door, bot: Door) -> None:
    other = User.objects.get(username="bea")
    set_groups("bea", [Group.ADMINS], actor=None)
    _, token = tokens.create(other, ALL_SCOPES)
    path = f"/instances/{Instance.objects.get().id}"
    for method in ("GET", "DELETE"):
        assert code(Door(token).send(method, path)) == (404, "not_found")


def test_a_token_without_the_right_manages_nothing(bot: Door, cast: Cast) -> None:
    for owner, scopes in ((cast.ada, ALL_SCOPES), (cast.admin, ALL_SCOPES - {"instances:manage"})):
        _, token = tokens.create(owner, scopes)
        refused = Door(token).send("POST", "/instances", {}, "k")
        assert code(refused)[0] == 403
    assert Instance.objects.count() == 1


def test_a_session_is_nothing_here(admin: Client) -> None:
    answer = admin.post("/api/aap/v1/instances", {}, content_type="application/json")
    assert code(answer) == (401, "invalid_credential")


def test_an_owner_who_may_not_start_runs_asks_for_nothing(bot: Door) -> None:
    set_groups("bea", [Group.ADMINS], actor=None)
    set_groups("admin", [], actor=None)
    assert code(bot.send("POST", "/requests", BODY, "k"))[0] == 403


def test_a_row_that_nobody_signed_is_no_instance(bot: Door, admin: Client) -> None:
    credential = bot.client.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    instance = authenticate(credential)
    assert instance is not None
    assert credential.encode() not in str(instance.sealed).encode()
    with pytest.raises(DatabaseError), transaction.atomic():
        Instance.objects.update(secret_hash="0" * 64)
    Instance.objects.update(signature="00" * 64)
    assert authenticate(credential) is None
    shows(admin, "/instances/", "not signed")


# Pages and tokens


HOSTILE = '<b>"x"</b>'


def instance_named(name: str) -> Instance:
    return Instance.objects.get(name=name)


def test_an_instance_is_made_on_the_page_and_asks(
    admin: Client, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    shows(admin, "/instances/", "None yet.")
    page = text_of(admin.post("/instances/add/", {"name": HOSTILE}))
    has(page, "shown this once", f"{settings.PUBLIC_URL}/api/aap", hides=[HOSTILE])
    credential = re.findall("sgi_[0-9a-f]+_[0-9a-f]+", page)[0]
    assert f"admin provisioned the instance {instance_named(HOSTILE).id}" in caplog.text
    shows(admin, "/instances/", "never asked", "0 open requests", hides=[credential, HOSTILE])
    Door(credential).ask({**BODY, "context": {"framework": "<i>langgraph"}})
    row = "says it is <bdi>&lt;i&gt;langgraph</bdi>"
    shows(admin, "/instances/", row, "last asked", "1 open request<", "of <bdi>admin")
    assert "must have 1 to 100" in text_of(admin.post("/instances/add/", {"name": ""}), 422)


def test_ending_says_first_how_many_requests_it_cancels(
    admin: Client, bot: Door, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, unseen, approved = bot.ask(), bot.ask(), bot.ask()
    desk.advance(waiting["id"])
    desk.decide(approved["id"])
    instance = Instance.objects.get()
    assert str(instance.id) in text(admin, "/instances/")
    shows(admin, f"/instances/{instance.id}/end/", "2 requests that wait for people are cancelled")
    assert bot.read(waiting["id"])["status"] == "pending"  # reading changed nothing
    answer = admin.post(f"/instances/{instance.id}/end/", follow=True)
    has(text_of(answer), "Requests cancelled: 2", "1 ended")
    assert f"admin ended the instance {instance.id}" in caplog.text
    assert code(bot.send("GET", f"/requests/{waiting['id']}")) == (401, "invalid_credential")
    assert [desk.advance(made["id"]) for made in (waiting, unseen)] == ["cancelled"] * 2
    assert desk.approval(approved["id"]).status == "approved"
    shows(admin, f"/instances/{instance.id}/end/", "None of its requests waits")
    assert "cancelled: 0" in text_of(admin.post(f"/instances/{instance.id}/end/", follow=True))
    assert admin.get(f"/instances/{uuid4()}/end/").status_code == 404


def test_what_an_interrupted_end_left_is_cancelled_from_the_page(
    admin: Client, bot: Door, desk: Desk
) -> None:
    made = bot.ask()
    desk.advance(made["id"])
    instance = Instance.objects.get()
    instances.delete(instance=instance.id, actor=None)  # then the process died
    end = f"/instances/{instance.id}/end/"
    shows(admin, "/instances/", "1 ended", f'href="{end}">Cancel its requests')
    assert "cancelled: 1" in text_of(admin.post(end, follow=True))
    assert desk.advance(made["id"]) == "cancelled"
    shows(admin, "/instances/", "1 ended", hides=[end])


def test_another_admin_ends_the_instance_of_a_disabled_owner(
    admin: Client, bot: Door, desk: Desk, cast: Cast
) -> None:
    made = bot.ask()
    set_groups("bea", [Group.ADMINS], actor=None)
    accounts.disable("admin", actor="bea")
    assert code(bot.send("POST", "/requests", BODY, "k")) == (401, "invalid_credential")
    bea = log_in(cast.bea)
    shows(bea, "/instances/", "owner disabled")
    has(text_of(bea.post(f"/instances/{Instance.objects.get().id}/end/", follow=True)), "ed: 1")
    entry = AuditEntry.objects.get(run=made["id"], act="cancelled", subject=f"run {made['id']}")
    assert entry.actor == "bea"


def test_lists_show_the_requests_of_one_instance(
    bot: Door, provision: Callable[[str], Door], desk: Desk, admin: Client, admin_api: Caller
) -> None:
    other = provision("Other bot")
    mine = [bot.ask(), bot.ask({**BODY, "tool": "decided"})]
    theirs = [other.ask({**BODY, "tool": "elsewhere"}), other.ask({**BODY, "tool": "elsewhere"})]
    for waiting, decided in (mine, theirs):
        desk.advance(waiting["id"])
        desk.decide(decided["id"])
    instance = instance_named("Deploy bot").id
    page = text(admin, "/instances/")
    inbox, history = f"/inbox/?view=all&q=instance:{instance}", f"/decisions/?instance={instance}"
    has(page, inbox.replace("&", "&amp;"), history)
    for address, request in ((inbox, mine[0]), (history, mine[1])):
        listed = re.findall('href="/a/([0-9a-f-]{36})/', text(admin, address))
        assert set(listed) == {str(desk.approval(request["id"]).id)}
    for query in (f"instance={instance}", f"q=instance:{instance}"):
        items = admin_api.get(f"/decisions?{query}").json()["items"]
        assert [item["run"] for item in items] == [mine[1]["id"]]
    for wrong in ("/inbox/?q=instance:bot", "/decisions/?instance=bot"):
        shows(admin, wrong, "must name an instance by its id", status=422)


def test_the_list_costs_the_same_beside_any_number(
    admin: Client, bot: Door, provision: Callable[[str], Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        provision(f"Bot {number}").ask()
    with queries_at_most(9):
        text(admin, "/instances/")
    monkeypatch.setattr(instances, "MAX_INSTANCES", 2)
    shows(admin, "/instances/", "Bot 4", "Bot 3", "4 more instances fit", hides=["Bot 2"])
    shows(admin, "/instances/?q=bot+2", "Bot 2", hides=["Bot 3", "more instance"])
    shows(admin, f"/instances/?q={instance_named('Bot 1').id}", "Bot 1", hides=["Bot 2"])
    shows(admin, "/instances/?q=is:it", "has no filter is:", status=422)


def test_a_busy_instance_writes_its_row_once_a_minute(
    bot: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot.ask()
    first = Instance.objects.get().last_request_at
    bot.ask()
    assert Instance.objects.get().last_request_at == first
    monkeypatch.setattr(instances, "_REQUEST_GRAIN", timedelta(0))
    bot.ask()
    assert Instance.objects.get().last_request_at != first


def test_a_token_of_a_provisioner_manages_instances_alone(
    admin: Client, cast: Cast, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plain = tokens.create(cast.admin, [Scope.INSTANCES_MANAGE], name="terraform")
    assert Door(plain).send("POST", "/instances", {}, "k").status_code == 201
    _, every = tokens.create(cast.admin, ALL_SCOPES, name="every scope")
    _, other = tokens.create(cast.admin, ALL_SCOPES - {Scope.INSTANCES_MANAGE}, name="other")
    tokens.create(cast.ada, ALL_SCOPES, name="no effect")
    past, _ = tokens.create(cast.admin, [Scope.INSTANCES_MANAGE], name="past", days=1)
    Token.objects.filter(pk=past.pk).update(revoked_at=past.created_at)
    shows(
        admin,
        "/instances/",
        "terraform",
        "every scope",
        hides=[plain, ">other<", ">past<", "no effect"],
    )
    address = "/instances/tokens/{}/revoke/"
    assert admin.post(address.format(other.split("_")[1])).status_code == 404
    for token in (plain, every):
        answer = admin.post(address.format(token.split("_")[1]), follow=True)
        has(text_of(answer), "The instances that it created have not ended.")
        assert code(Door(token).send("POST", "/instances", {}, "k")) == (401, "invalid_credential")
    monkeypatch.setattr(instances, "MAX_TOKENS", 0)
    shows(admin, "/instances/", "There is none.")


def test_the_api_lists_and_ends_instances(
    bot: Door, desk: Desk, admin_api: Caller, ada_api: Caller
) -> None:
    request, instance = bot.ask(), str(Instance.objects.get().id)
    page = admin_api.get("/instances?q=bot").json()
    assert page["omitted"] == 0
    (row,) = page["items"]
    assert (row["id"], row["owner"], row["state"]) == (instance, "admin", "active")
    assert (row["framework"], row["open_requests"]) == ("langgraph", 1)
    assert "credential" not in row
    end = f"/instances/{instance}/end"
    assert ada_api.post(end).status_code == 403
    assert admin_api.post(end).json() == {"cancelled": 1}
    assert admin_api.post(end).json() == {"cancelled": 0}
    assert desk.advance(request["id"]) == "cancelled"
    assert admin_api.get("/instances").json()["items"][0]["state"] == "ended"
    assert field_of(admin_api.get("/instances?q=%00")) == (422, "q")
    for unknown in (uuid4(), "bot"):
        assert admin_api.post(f"/instances/{unknown}/end").status_code == 404


# Commands


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
        (["create", "", "--owner", "admin"], "name must have 1 to 100 characters"),
        (["create", "Bot", "--owner", "unknown"], "may not act"),
        (["delete", uuid4()], "There is no such instance"),
    ],
)
def test_a_refusal_is_one_line(desk: Desk, words: list[Any], reason: str) -> None:
    assert reason in tried("instances", *words)[1]
    assert not Instance.objects.exists()


def test_the_api_makes_lists_and_revokes_tokens_of_provisioners(
    desk: Desk, cast: Cast, admin_api: Caller, ada_api: Caller
) -> None:
    made = admin_api.post("/instances/tokens", {"name": "terraform", "days": 30}).json()
    provisioner = Door(made["token"])
    assert provisioner.send("POST", "/instances", {}, "k").status_code == 201
    (row,) = [
        item
        for item in admin_api.get("/instances/tokens").json()["items"]
        if item["id"] == made["id"]
    ]
    assert (row["owner"], row["name"], row["scopes"]) == (
        "admin",
        "terraform",
        ["instances:manage"],
    )
    assert "token" not in row
    assert row["expires_at"] == made["expires_at"]
    revoke = f"/instances/tokens/{made['id']}/revoke"
    assert ada_api.post(revoke).status_code == 403
    for _ in range(2):
        assert admin_api.post(revoke).json()["revoked_at"] is not None
    assert code(provisioner.send("POST", "/instances", {}, "k")) == (401, "invalid_credential")
    theirs, _ = tokens.create(cast.ada, ALL_SCOPES)
    for unknown in (theirs.public_id, "x"):
        assert admin_api.post(f"/instances/tokens/{unknown}/revoke").status_code == 404
    wrong = {"name": (None, "", "x" * 61, 7), "days": (0, 3651, "9", True, 2**70)}
    for field, values in wrong.items():
        for value in values:
            body = {"name": "x", field: value}
            assert field_of(admin_api.post("/instances/tokens", body)) == (422, field)


def test_a_token_makes_no_token_that_outlives_it(cast: Cast, desk: Desk, admin_api: Caller) -> None:
    """One that leaked and only manages instances makes none, and no other one a longer token than itself."""
    made = []
    for scopes in ([Scope.INSTANCES_MANAGE], [Scope.INSTANCES_MANAGE, Scope.ADMIN]):
        _, plain = tokens.create(cast.admin, scopes, days=30)
        admin_api.client = Client(headers={"authorization": f"Bearer {plain}"})
        assert admin_api.get("/instances/tokens").status_code == 200
        made += [
            admin_api.post("/instances/tokens", {"name": "x", "days": days})
            for days in (29, 31, None, 10**12)
        ]
    assert [answer.status_code for answer in made] == [403] * 4 + [200] + [422] * 3
    assert made[0].json()["code"] == "scope"
    assert {field_of(answer) for answer in made[5:]} == {(422, "days")}
    admin_api.client = log_in(cast.admin)
    assert admin_api.post("/instances/tokens", {"name": "x"}).status_code == 200  # a session may


def test_a_token_that_only_manages_instances_revokes_itself_alone(
    desk: Desk, cast: Cast, admin_api: Caller
) -> None:
    other, _ = tokens.create(cast.admin, ALL_SCOPES)
    for scopes, status in (([Scope.INSTANCES_MANAGE], 403), (ALL_SCOPES, 200)):
        token, plain = tokens.create(cast.admin, scopes)
        admin_api.client = Client(headers={"authorization": f"Bearer {plain}"})
        revoked = admin_api.post(f"/instances/tokens/{other.public_id}/revoke")
        assert revoked.status_code == status
        other.refresh_from_db()
        assert (other.revoked_at is None) is (status == 403)
        assert admin_api.post(f"/instances/tokens/{token.public_id}/revoke").status_code == 200
        assert admin_api.get("/instances").status_code == 401
