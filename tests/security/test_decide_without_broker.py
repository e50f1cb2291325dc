"""Decisions in the browser and over the API open no connection to the broker."""

import socket
import threading
from typing import Any

import pytest
from django.test import Client

from runtime.broker import dispatch
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.office import Target

REAL_HINT = dispatch.dispatch
CONNECT = socket.socket.connect


@pytest.mark.parametrize("over_api", [False, True])
@pytest.mark.usefixtures("live_broker")
def test_a_decision_opens_no_connection_to_the_broker(
    target: Target,
    cast: Cast,
    over_api: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = target.start()
    connects: list[threading.Thread] = []  # Postgres' own library opens its connections unseen

    def watched(self: socket.socket, address: Any) -> None:
        connects.append(threading.current_thread())
        CONNECT(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    monkeypatch.setattr(dispatch, "_thread", None)
    dispatch._broker.cache_clear()
    monkeypatch.setattr(dispatch, "dispatch", REAL_HINT)
    request = target.request(run)
    body = {"verdict": "approve", "digest": request.request_digest, "reason": ""}
    if over_api:
        Caller(cast.bea).post(f"/approvals/{request.id}/decision", body)
    else:
        client = Client()
        client.force_login(cast.bea)
        client.post(f"/a/{request.id}/approve/", body)
    assert target.request(run).status == "approved"
    assert dispatch._thread is not None
    dispatch._thread.flush()
    assert connects  # the dispatch thread does, so the guard works
    assert {thread.name for thread in connects} <= {"dispatch", "notifier"}
