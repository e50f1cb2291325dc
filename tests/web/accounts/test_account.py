"""Login, forms that are sent without a session, the account page, and the People page of admins."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.db import ProgrammingError, connection, transaction
from django.test import Client

from approvals.models import Approval, LoginFailures, Token
from approvals.people import account_list, tokens
from approvals.people.accounts import create_person
from approvals.rights import principals
from approvals.rights.principals import ALL_SCOPES
from approvals.rules.policy import Group
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from tests.support.pages import has, log_in, queries_at_most, shows, text, text_of
from tests.support.seeds import PASSWORD, Cast
from tests.web.matrix import ROWS, Places

NEW = "another horse battery"
CHANGE = {"current": PASSWORD, "password": NEW, "again": NEW}


def test_logging_in_never_leads_elsewhere(cast: Cast) -> None:
    form = {"username": "bea", "password": PASSWORD}
    assert Client().post("/login/", {**form, "next": "/runs/"})["Location"] == "/runs/"
    for outside in (
        "https://elsewhere.example/",
        "%2f%2felsewhere.example",
        "runs/",
        "/\\elsewhere",
    ):
        assert Client().post("/login/", {**form, "next": outside})["Location"] == "/"


def test_the_login_leads_to_the_page_of_the_form(asked: Approval, suspended: UUID) -> None:
    for form, page in {
        f"/a/{asked.id}/settle/happened/": f"/a/{asked.id}/",
        f"/runs/{suspended}/pause/": f"/runs/{suspended}/",
        f"/runs/{suspended}/fork/1/": f"/runs/{suspended}/fork/1/",
        "/people/cyril/groups/": "/people/",
    }.items():
        answer = Client().post(form, {"reason": "because"})
        assert answer["Location"] == f"/login/?next={page}&unsent=1", form
    assert Client().get("/runs/?q=x")["Location"] == "/login/?next=/runs/%3Fq%3Dx"


def test_the_login_says_that_a_form_was_not_sent(places: Places, subtests: pytest.Subtests) -> None:
    form = {"username": "admin", "password": PASSWORD}
    forms = [row for row in ROWS if row.method == "POST" and row.cells["anon"] == "in"]
    pages = [row for row in forms if not row.is_api and not row.path.startswith("/slack/")]
    sent = [Client().post(row.path.format(**places)) for row in pages]
    for to_login in {answer["Location"] for answer in sent}:
        with subtests.test(to_login):
            page = Client().post(to_login, form, follow=True)
            has(text_of(page), "You were logged out before this was sent")


def test_a_new_password_ends_other_sessions_and_keeps_this_one(bea: Client, cast: Cast) -> None:
    other, before = log_in(cast.bea), bea.session.session_key
    _, plain = tokens.create(cast.bea, ALL_SCOPES)
    assert bea.post("/account/password/", CHANGE)["Location"] == "/account/"
    shows(bea, "/account/", "Your password is changed")
    assert bea.session.session_key != before
    assert other.get("/account/")["Location"].startswith("/login/")
    assert tokens.authenticate(plain) is not None
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)


def test_a_refused_password_says_why_and_guesses_are_throttled(bea: Client, cast: Cast) -> None:
    for change, said in (
        ({"again": "other"}, "New password</bdi> was not typed the same way twice."),
        ({"password": "bea", "again": "bea"}, "New password</bdi> is not good enough"),
    ):
        answer = bea.post("/account/password/", {**CHANGE, **change})
        has(text_of(answer, 422), said, hides=[PASSWORD])
    assert not LoginFailures.objects.exists()  # the right password is not counted
    guesses = [{**CHANGE, "current": f"guess {n}"} for n in range(8)]
    answers = [bea.post("/account/password/", guess) for guess in guesses]
    assert [answer.status_code for answer in answers] == [422] * 5 + [429] * 3
    spoken = 'role="alert" id="my-current_error"><bdi>Current password</bdi> is not your password.'
    has(text_of(answers[0], 422), spoken)
    has(text_of(bea.post("/account/password/", CHANGE), 429), "Try again at <time")
    text(bea, "/inbox/")
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(PASSWORD)


def test_a_token_is_shown_once_and_revoked_by_its_owner(bea: Client, cast: Cast) -> None:
    scopes = ["runs:read", "approvals:read"]
    for wrong, said in (
        ({"scopes": scopes}, "say what the token is for"),
        ({"name": "<b>reports"}, "choose at least one"),
        ({"name": "x" * 61, "scopes": scopes}, "at most 60 visible characters"),
        ({"name": "x", "scopes": scopes, "days": "0"}, "Days until it expires</bdi> must be 1 to"),
    ):
        has(text_of(bea.post("/account/tokens/add/", wrong), 422), said)
    form = {"name": "reports", "scopes": scopes, "days": "30"}
    answer = bea.post("/account/tokens/add/", form)
    found = re.search(r"sgn_[0-9a-f]{16}_[0-9a-f]{64}", answer.content.decode())
    assert found is not None
    actor = tokens.authenticate(found[0])
    assert actor is not None
    assert actor.person == "bea"
    assert Token.objects.get().scopes == ["approvals:read", "runs:read"]
    other, _ = tokens.create(cast.ada, ALL_SCOPES)
    hides = [found[0], other.public_id, "start runs of agents"]
    shown = (str(actor.token), "decide on the calls", "<bdi>reports</bdi>", "expires in 30 d")
    shows(bea, "/account/", *shown, hides=hides)
    assert found[0].rpartition("_")[2] not in str(bea.session.items())
    assert bea.post(f"/account/tokens/{actor.token}/revoke/").status_code == 302
    assert tokens.authenticate(found[0]) is None
    shows(bea, "/account/", "revoked just now")


def test_an_expired_token_opens_nothing(cast: Cast) -> None:
    token, plain = tokens.create(cast.bea, ALL_SCOPES, name="reports", days=1)
    api = Client(headers={"authorization": f"Bearer {plain}"})
    assert api.get("/api/v1/approvals").status_code == 200
    with pytest.raises(ProgrammingError, match="do not change"), transaction.atomic():
        Token.objects.update(expires_at=None)
    # A web process that has not seen the end of the day refuses it at the rights, too.
    over = token.created_at + timedelta(days=2)
    actor = Actor(person="bea", token=token.public_id)
    assert principals.find_principal(actor) is not None
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {principals.CREDENTIALS}", {"person": "bea", "token": token.public_id}
        )
        (held,) = cursor.fetchone()
    assert principals.restore_principal(actor, held, over) is None
    expired = tokens.issue(Token(owner=cast.bea, scopes=sorted(ALL_SCOPES)), days=-1)
    api = Client(headers={"authorization": f"Bearer {expired}"})
    assert api.get("/api/v1/approvals").status_code == 401


def test_logging_out_everywhere_ends_ones_sessions(bea: Client, ada: Client, cast: Cast) -> None:
    other = log_in(cast.bea)
    assert bea.post("/account/log-out-everywhere/")["Location"] == "/login/"
    for client in (bea, other):
        assert client.get("/account/")["Location"].startswith("/login/")
    text(ada, "/account/")


PERSON = {"username": "newhire", "group": ["reviewers"]}


def _done(admin: Client, path: str, form: dict[str, Any] | None = None) -> str:
    """The page after a successful action."""
    answer = admin.post(path, form or {}, follow=True)
    assert [code for _, code in answer.redirect_chain] == [302]
    return text_of(answer)


def _card(page: str, name: str) -> str:
    return page.split(f'person" id="{name}"')[1].split('class="card person"', maxsplit=1)[0]


def test_the_page_lists_people_with_groups_state_and_tokens(admin: Client, cast: Cast) -> None:
    token, plain = tokens.create(cast.ada, ["runs:start"])
    gone, _ = tokens.create(cast.bea, ALL_SCOPES)
    tokens.revoke(gone.public_id, actor=None)
    cast.cyril.groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    User.objects.filter(username="cyril").update(is_active=False)
    page = shows(admin, "/people/", hides=[plain])
    has(_card(page, "ada"), token.public_id, "never used", "1 token<")
    has(_card(page, "bea"), "revoked just now", "0 tokens<", "never logged in")
    has(_card(page, "cyril"), "disabled</span>", "There is no record of who gave this")
    has(_card(page, "admin"), "you</span>", "last login just now")


def test_a_person_is_added_and_a_refused_one_shows_the_reason_and_the_input(admin: Client) -> None:
    for change, said in (
        ({"username": "BEA"}, "Username</bdi> is taken"),
        ({"email": "newhire"}, "E-mail</bdi> must be a mail address"),
        ({"group": ["reviewers", "king's"]}, "Groups king&#x27;s does not exist"),
    ):
        form: dict[str, Any] = {**PERSON, **change}
        page = has(text_of(admin.post("/people/add/", form), 422), said)
        adding = page.split("/people/add/")[1].split("</form>")[0]
        has(adding, f'value="{form["username"]}"')
        assert re.search('value="reviewers"[^>]* checked', adding)
        assert User.objects.count() == 4
    has(text_of(admin.post("/people/add/", PERSON)), "Password link of <bdi>newhire</bdi>")


def test_a_second_admin_confirms_the_assignment_of_the_first(admin: Client, cast: Cast) -> None:
    second = log_in(create_person(username="second", password=PASSWORD, groups=[Group.ADMINS]))
    form = "/people/cyril/rights/reviewers/confirm/"
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["reviewers"]}), "cyril")
    limits = ("Cannot decide before <time", "Cannot decide in runs of <bdi>admin</bdi>")
    given = ('id="cyril-group_1" checked', "given by <bdi>admin</bdi> just now")
    has(card, *given, *limits, "You cannot confirm this", hides=[form])
    has(_card(text(second, "/people/"), "cyril"), form)
    long = "9" * 5_000  # for int()
    has(text_of(second.post(form, {"seq": long}), 409), "changed since you saw it")
    card = _card(_done(second, form, {"seq": "1"}), "cyril")
    has(card, "confirmed by <bdi>second</bdi>", hides=["Cannot decide"])
    card = _card(_done(admin, "/people/cyril/groups/", {"group": ["admins"]}), "cyril")
    has(card, "waits for a second admin")


def test_an_admins_own_account_is_not_changed_here(admin: Client, cast: Cast) -> None:
    page = text_of(admin.post("/people/admin/groups/", {"group": ["reviewers"]}), 409)
    has(_card(page, "admin"), "admin is the last active admin and cannot leave admins.")
    assert admin.post("/people/admin/disable/").status_code == 409
    has(text_of(admin.post("/people/admin/link/"), 409), "changed on the page Your account")


def test_an_admin_disables_and_enables_people(admin: Client, cast: Cast) -> None:
    page = _done(admin, "/people/bea/disable/")
    has(page, "bea is disabled", "/people/bea/enable/", hides=["/people/bea/disable/"])
    _done(admin, "/people/bea/enable/")
    cast.bea.refresh_from_db()
    assert cast.bea.is_active


def test_an_admin_cannot_make_a_token_of_another(admin: Client, cast: Cast) -> None:
    form = {"scopes": ["approvals:decide"]}
    assert admin.post("/people/bea/tokens/add/", form).status_code == 404
    shows(admin, "/people/?open=bea", hides=['name="scopes"'])
    with pytest.raises(Forbidden) as refused:
        tokens.create(cast.bea, ALL_SCOPES, actor="admin")
    assert refused.value.code == "not_owner"
    assert not Token.objects.exists()


def test_a_token_is_revoked_of_the_person_named(admin: Client, cast: Cast) -> None:
    token, plain = tokens.create(cast.bea, ALL_SCOPES)
    for name in ("ada", "dora"):
        assert admin.post(f"/people/{name}/tokens/{token.public_id}/revoke/").status_code == 404
    assert tokens.authenticate(plain) is not None
    page = _done(admin, f"/people/bea/tokens/{token.public_id}/revoke/")
    assert f"Token {token.public_id} of bea is revoked." in page
    assert tokens.authenticate(plain) is None
    for act in ("groups", "disable", "enable", "link", "profile"):
        assert admin.post(f"/people/dora/{act}/").status_code == 404


def test_people_are_found_or_counted(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        person = create_person(username=f"p{number}", password=PASSWORD, groups=[Group.REVIEWERS])
        tokens.create(person, ALL_SCOPES)
    with queries_at_most(12):
        text(admin, "/people/")
    monkeypatch.setattr(account_list, "MAX_PEOPLE", 2)
    page = shows(admin, "/people/?open=cyril", "22 more people fit")
    assert re.findall('person" id="([a-z]+)"', page) == ["ada", "admin", "cyril"]
    assert re.findall('person" id="([a-z]+)"', text(admin, "/people/?q=BE")) == ["bea"]
    shows(admin, "/people/?q=<script>", "No match")
    shows(admin, "/people/?q=%00&open=%00", hides=["\x00"])
