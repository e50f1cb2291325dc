"""Decisions in the browser and over the API open no connection to the broker."""

import socket
import threading
from typing import Any

import pytest
from django.test import Client

from approvals.models import Request
from runtime.broker import dispatch
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.target import Target


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Every thread that opens a connection, once for each. Postgres' own library opens its own unseen."""
    seen: list[threading.Thread] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        seen.append(threading.current_thread())
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    monkeypatch.setattr(dispatch, "_thread", None)
    dispatch._broker.cache_clear()
    return seen


REAL_HINT = dispatch.dispatch


@pytest.mark.parametrize("door", ["page", "api"])
@pytest.mark.usefixtures("live_broker")
def test_a_decision_opens_no_connection_to_the_broker(
    target: Target,
    cast: Cast,
    connects: list[threading.Thread],
    door: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = target.start()
    monkeypatch.setattr(dispatch, "dispatch", REAL_HINT)
    _decide(door, cast, target.request(run))
    assert target.request(run).status == "approved"
    assert dispatch._thread is not None
    dispatch._thread.flush()
    assert connects  # the dispatch thread does, so the guard works
    assert threading.current_thread() not in connects
    assert {thread.name for thread in connects} <= {"dispatch", "notifier"}


@pytest.mark.parametrize("door", ["page", "api"])
def test_a_decision_does_without_a_broker(
    target: Target, cast: Cast, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = target.start()
    monkeypatch.setattr(dispatch, "dispatch", REAL_HINT)
    _decide(door, cast, target.request(run))
    assert target.request(run).status == "approved"
    assert target.advance(run).status == "completed"


def _decide(door: str, cast: Cast, request: Request) -> None:
    body = {"verdict": "approve", "digest": request.request_digest, "reason": ""}
    if door == "api":
        answer = Caller(cast.bea).post(f"/approvals/{request.id}/decision", body)
        assert answer.status_code == 200
        return
    client = Client()
    client.force_login(cast.bea)
    assert client.post(f"/a/{request.id}/approve/", body).status_code == 302
