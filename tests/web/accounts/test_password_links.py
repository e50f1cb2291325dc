"""Links with which people choose their own password: made by an admin, used once, for a while."""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db import ProgrammingError, transaction
from django.test import Client

from approvals import clock
from approvals.errors import LastAdmin, LinkOver
from approvals.models import PasswordLink
from approvals.people import accounts, password_links
from approvals.people.accounts import create_person
from approvals.rights import assignments
from approvals.rules.policy import Group
from tests.support.pages import has, log_in, shows, text_of
from tests.support.seeds import PASSWORD, Cast

pytestmark = pytest.mark.django_db

NEW = "another horse battery"
TWICE = {"password": NEW, "again": NEW}
HIRE = {"username": "newhire", "group": ["reviewers"], "full_name": "New Hire"}


def _link_of(answer: Any) -> str:
    found = re.search(r"/password/([0-9a-f]{16}_[0-9a-f]{64})/", text_of(answer))
    assert found is not None
    return found[1]


def test_an_invited_person_chooses_a_password_once(admin: Client) -> None:
    answer = admin.post("/people/add/", {**HIRE, "email": "hire@example.com"})
    link = _link_of(answer)
    has(text_of(answer), "Mailed to", "shown this once")
    assert link in mail.outbox[0].body
    path, stranger = f"/password/{link}/", Client()
    login = {"username": "newhire", **TWICE}
    assert Client().post("/login/", login).status_code == 200  # no password yet
    for _ in range(2):
        shows(stranger, path, "For the account", "newhire")  # as a scanner of mail does
    wrong = stranger.post(path, {**TWICE, "again": "other"})
    has(text_of(wrong, 422), "New password</bdi> was not typed the same way twice.", hides=[NEW])
    has(
        text_of(stranger.post(path, {"password": "b", "again": "b"}), 422),
        "not good enough",
        hides=("..</p>",),
    )
    assert stranger.post(path, TWICE)["Location"] == "/login/"
    shows(stranger, "/login/", "Your password is saved")
    assert stranger.post("/login/", login)["Location"] == "/"
    has(text_of(Client().post(path, TWICE), 404), "not valid any more", hides=[NEW])
    page = shows(admin, "/people/?q=hire%40example", "New Hire", "last active just now")
    has(page, "given by <bdi>admin</bdi> just now, changed since")


def test_a_link_ends_with_a_newer_one_in_time_and_with_its_maker(cast: Cast) -> None:
    second = create_person(username="second", password=PASSWORD, groups=[Group.ADMINS])
    first, kept = (password_links.create("bea", actor="second") for _ in range(2))
    session = log_in(cast.bea)
    assert password_links.read_username(kept.plain) == "bea"
    for made in (first.plain, kept.plain[:-1] + "g", f"{kept.plain[:17]}{'0' * 64}", ""):
        with pytest.raises(LinkOver):
            password_links.use(made, NEW)
    accounts.set_groups("second", [], actor="admin")
    with pytest.raises(LinkOver):
        password_links.use(kept.plain, NEW)
    accounts.set_groups("second", [Group.ADMINS], actor=None)
    still_open = PasswordLink.objects.filter(ended_at=None)
    User.objects.filter(username="bea").update(is_active=False)
    with pytest.raises(LinkOver):
        password_links.use(kept.plain, NEW)
    assert still_open.get().person == cast.bea
    accounts.enable("bea", actor="admin")
    assert session.get("/inbox/")["Location"].startswith("/login/")
    password_links.use(kept.plain, NEW)
    with pytest.raises(LinkOver):
        password_links.use(kept.plain, NEW)
    cast.bea.refresh_from_db()
    assert cast.bea.check_password(NEW)
    row = assignments.find_password_row(cast.bea)
    assert row is not None
    assert row.givers[0] == "second"  # who read the link may have used it
    assert second.is_active


ENDS: dict[str, list[Callable[[], object]]] = {
    "disabled, then enabled": [
        partial(accounts.disable, "bea", actor="admin"),
        partial(accounts.enable, "bea", actor="admin"),
    ],
    "a password of an admin": [partial(accounts.set_password, "bea", NEW, actor="admin")],
    "a password of their own": [partial(accounts.set_password, "bea", NEW, actor="bea")],
    "no password": [partial(accounts.remove_password, "bea", actor="admin")],
}


@pytest.mark.parametrize("case", ENDS)
def test_a_link_ends_with_what_it_was_made_for(cast: Cast, case: str) -> None:
    link, other = (password_links.create(name, actor="admin") for name in ("bea", "cyril"))
    for act in ENDS[case]:
        act()
    with pytest.raises(LinkOver):
        password_links.use(link.plain, "third horse battery")
    assert password_links.read_username(other.plain) == "cyril"


def test_the_log_hides_links(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (handler,) = (one for one in logging.getLogger().handlers if one.name == "stderr")
    log, path = StringIO(), f"/password/{'a' * 16}_{'b' * 64}/"
    monkeypatch.setattr(handler, "stream", log)
    assert client.get(path).status_code == 404
    assert Client(enforce_csrf_checks=True).post(path).status_code == 403
    access = ("127.0.0.1:5", "GET", f"{path}?a=b", "1.1", 200)  # as uvicorn.protocols.http logs it
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', *access)
    has(
        log.getvalue(),
        "Not Found: /password/…/",
        "Forbidden (",
        "GET /password/…/?a=b",
        hides=["bb"],
    )


def test_an_address_that_no_mail_can_have_is_no_fault(cast: Cast) -> None:
    link = password_links.create("bea", actor="admin")
    assert not password_links.send(link, f"bea@{'ä' * 60}.com")  # saved before this was checked


def test_a_link_that_postgres_was_told_to_make_is_void(cast: Cast) -> None:
    old = password_links.create("bea", actor=None)
    row = PasswordLink.objects.get()
    for changed in ({"expires_at": row.expires_at + timedelta(days=9)}, {"person": cast.ada}):
        with pytest.raises(ProgrammingError, match="end once"):
            _changed(changed)
    row.public_id, row.person = "0" * 16, cast.ada
    row.save(force_insert=True)
    with pytest.raises(LinkOver):
        password_links.read_username(f"{row.public_id}_{old.plain[17:]}")


def _changed(changed: dict[str, Any]) -> None:
    with transaction.atomic():
        PasswordLink.objects.update(**changed)


def test_an_old_link_is_over(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    link = password_links.create("bea", actor="admin")
    later = link.expires_at
    monkeypatch.setattr(clock, "read_time", lambda: later)
    with pytest.raises(LinkOver):
        password_links.read_username(link.plain)


def test_who_may_have_a_link(admin: Client, cast: Cast) -> None:
    with pytest.raises(LastAdmin, match="page Your account"):
        password_links.create("admin", actor="admin")
    User.objects.filter(username="cyril").update(is_active=False)
    has(text_of(admin.post("/people/cyril/link/"), 409), "cyril is disabled")
    assert not PasswordLink.objects.exists()


def test_names_and_addresses_are_saved_and_found(admin: Client, bea: Client) -> None:
    long_label = f"bea@{'ä' * 60}.com"  # too long once it is encoded for a mail
    for field, value in (
        ("email", "bea at home"),
        ("email", long_label),
        ("full_name", "Be\u202ea"),
    ):
        form = {"full_name": "Bea", "email": "", field: value}
        has(
            text_of(bea.post("/account/profile/", form), 422),
            f"own-{field}_error",
            'aria-invalid="true"',
        )
        has(text_of(admin.post("/people/bea/profile/", form), 422), f"bea-{field}_error")
    bea.post("/account/profile/", {"full_name": "Bea Reviewer", "email": "bea@example.com"})
    shows(bea, "/account/", 'value="Bea Reviewer"', 'value="bea@example.com"')
    for query in ("bea@example", "Reviewer", "group:reviewers bea", "is:active bea"):
        page = shows(admin, f"/people/?q={query}", "Bea Reviewer")
        assert re.findall('person" id="([a-z]+)"', page) == ["bea"]
    page = text_of(admin.get("/people/?q=garbage:xyz"), 422)
    has(page, "has no filter garbage:", "group:", 'aria-invalid="true"')
    page = shows(admin, "/people/bea/activity/", "Bea Reviewer", "Last decisions", "reviewers")
    has(page, "given on the command line")
