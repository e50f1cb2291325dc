"""Live updates reach only people who may read the run; streams end with their sessions."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client

from runtime.broker import dispatch
from runtime.web import live
from tests.support.office import Office
from tests.support.pages import log_in
from tests.web.live_tabs import House


@pytest.fixture
def house(live_broker: str, office: Office, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(dispatch, "_notifier", None)
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0.0)
    with House() as house:
        yield house


def test_a_ring_reaches_those_who_may_read_the_run_and_no_other(
    house: House, suspended: UUID, ada: Client, bea: Client, cyril: Client
) -> None:
    tabs = {name: house.open(client) for name, client in (("ada", ada), ("bea", bea))}
    outsider = house.open(cyril)
    dispatch.notify_run(suspended, inbox=True)
    for tab in tabs.values():
        tab.wait(lambda tab=tab: f"event: run\ndata: {suspended}\n\n" in tab.text)  # type: ignore[misc]
        assert "event: inbox\n" in tab.text
    dispatch.notify_person("cyril")  # published after the update, so its effect is visible
    dispatch.notify_run(uuid4(), inbox=True)
    assert outsider.text == ": open\n\n"


def test_the_inbox_rings_when_a_gate_opens_or_is_decided(
    house: House, office: Office, bea: Client
) -> None:
    tab = house.open(bea)
    run = office.start()
    tab.wait(lambda: "event: inbox" in tab.text and str(run) in tab.text)
    for _ in range(3):  # what rang for the gate may still be under way, and travels with the first
        tab.text = ""
        dispatch.notify_run(run, inbox=False)
        tab.wait(lambda: "event: run" in tab.text)
    assert "event: inbox" not in tab.text
    tab.text = ""
    office.approve(run)
    tab.wait(lambda: "event: inbox" in tab.text and str(run) in tab.text)


def test_rights_that_were_taken_away_count_at_the_next_ring(
    suspended: UUID, house: House, bea: Client
) -> None:
    tab, own = house.open(bea), uuid4()
    User.objects.get(username="bea").groups.clear()
    dispatch.notify_run(suspended, inbox=True)
    dispatch.notify_run(own, inbox=True)
    User.objects.filter(username="bea").update(is_active=False)
    dispatch.notify_person("bea")
    tab.wait(lambda: tab.ended)
    assert "event" not in tab.text


def test_logging_out_ends_only_the_streams_of_that_session(
    house: House, suspended: UUID, bea: Client
) -> None:
    other = log_in(User.objects.get(username="bea"))
    ends, stays = house.open(bea), house.open(other)
    bea.post("/logout/")
    ends.wait(lambda: ends.ended)
    dispatch.notify_run(suspended, inbox=True)
    stays.wait(lambda: "event: run" in stays.text)


def test_a_silent_stream_is_checked_by_the_clock(
    house: House, bea: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(live, "RIGHTS_SECONDS", 0.2)
    tab = house.open(bea)
    tab.wait(lambda: ": still here" in tab.text)
    User.objects.filter(username="bea").update(is_active=False)
    tab.wait(lambda: tab.ended)


def test_malformed_messages_are_ignored(
    house: House, live_broker: str, suspended: UUID, bea: Client
) -> None:
    tab = house.open(bea)
    broker = redis.Redis.from_url(live_broker)
    for junk in (b"\xff\x00", b"[]", b'{"runs": {"x": true}}', b'{"runs": 3}', b"[" * 100_000):
        broker.publish(dispatch.CHANNEL, junk)
    dispatch.notify_run(suspended, inbox=False)
    tab.wait(lambda: str(suspended) in tab.text)


def test_who_gets_no_stream(house: House, bea: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger, another site, another method, one tab too many, a disabled person."""
    assert house.open(None).status == 401
    assert house.open(bea, sec_fetch_site="cross-site").status == 403
    assert house.open(bea, sec_fetch_site="same-site").status == 403
    assert house.open(bea, method="POST").status == 405
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    first = house.open(bea)
    assert house.open(bea).status == 503
    assert not first.ended
    User.objects.filter(username="bea").update(is_active=False)
    monkeypatch.undo()
    assert house.open(bea).status == 401


def test_without_a_broker_pages_are_told_to_ask_by_themselves(office: Office, bea: Client) -> None:
    with House() as house:  # no live_broker: no broker at its address
        assert house.open(bea).status == 503
