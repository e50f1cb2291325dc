"""Credentials of tools: fetched when a call starts, made anew once if refused, and stored nowhere."""

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import httpx2
import pytest
from django.test import Client

from agents import credentials
from agents.credentials import Credential, Environment, File, OAuth, Vault
from agents.effect_handler import AgentEffects
from agents.errors import CredentialMissing, DefinitionError, NotDone, ToolError
from agents.sdk import CredentialRefused, ToolContext, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from runtime import network
from runtime.core.values.enums import GateKind
from runtime.models import Run
from runtime.ports.effects import ToolFailure
from tests.support.engine import HandDriven, start_run, stored_texts
from tests.support.oauth_server import CLIENT, SECRET, TokenServer, token_server
from tests.support.pages import send, shows, text
from tests.support.specs import Question, handler_of, registry_of, spec_of, tool_request


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    monkeypatch.setenv("CRM_SECRET", SECRET)
    credentials.forget_tokens()
    with token_server() as found:
        yield found
    credentials.forget_tokens()


def _crm(server: TokenServer, refresh: Path | None = None) -> OAuth:
    return OAuth(
        name="crm",
        token_url=f"{server.url}/token",
        client_id=CLIENT,
        client_secret=Environment("crm_secret", "CRM_SECRET"),
        refresh_token=None if refresh is None else File("crm_refresh", str(refresh)),
    )


def _agent(server: TokenServer, *credentials: Credential) -> Any:
    @tool(effect="write", approval=True, credentials=credentials)
    def look_up(context: ToolContext, text: str) -> dict[str, str]:
        """Looks a customer up."""
        headers = {"Authorization": f"Bearer {context.credentials['crm']}"}
        answer = httpx2.get(f"{server.url}/api", headers=headers)
        if answer.status_code == 401:
            raise CredentialRefused(f"401 for {context.credentials['crm']}")
        found: dict[str, str] = answer.json()
        return found

    @script
    def clerk(turn: Turn) -> Reply:
        done = turn.results
        return call("look_up", text=str(len(done))) if len(done) < 2 else say(str(done[-1].content))

    return spec_of("clerk", input=Question, model=clerk, tools=[look_up])


class Desk(HandDriven):
    """A worker with the agent that needs a credential, and the real approvals."""

    def __init__(self, spec: Any) -> None:
        super().__init__(AgentEffects(registry_of(spec)), ApprovalService())
        self.run = start_run("clerk", {"text": "go"})
        self.advance_once(self.run)

    def asked(self, kind: GateKind = GateKind.APPROVAL) -> Approval:
        return Approval.objects.get(run=self.run, status="pending", kind=kind)

    def approve(self, bea: Client) -> Run:
        send(bea, self.asked(), "approve")
        return self.advance_once(self.run)


def test_a_token_that_lapses_while_the_run_waits_is_refreshed_and_a_person_replaces_a_withdrawn_one(
    by_hand: None,
    cast: object,
    ada: Client,
    bea: Client,
    server: TokenServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    refresh = tmp_path / "refresh"
    refresh.write_text("canary-refresh-1\n")
    server.rotates = True
    desk = Desk(_agent(server, _crm(server, refresh)))
    try:
        assert server.grants == [], "nothing is fetched before the call may start"
        assert desk.approve(bea).status == "suspended"
        assert {refresh.read_text()} == server.refresh
        server.lapse()  # while the second call waits
        server.withdraw()
        assert desk.approve(bea).status == "suspended"
        assert server.calls == ["canary-access-0"] * 2
        assert server.grants == ["refresh_token"] * 2
        hold = desk.asked(GateKind.HOLD)
        why = f"replace {refresh}"
        shows(ada, desk.run, "The credential crm has expired or was withdrawn", why)
        shows(bea, hold, "The credential crm has expired or was withdrawn", why)
        run = Run.objects.get(id=desk.run)
        assert (run.owner, run.due_at) == (None, None)
        server.withdraw("canary-refresh-2")
        refresh.write_text("canary-refresh-2\n")
        send(bea, hold, "continue")
        assert desk.advance_once(desk.run).status == "completed"
        server.lapse()
        pages = [f"/runs/{desk.run}/", f"/runs/{desk.run}/?tab=transcript", f"/a/{hold.id}/"]
        seen = "".join(text(bea, page) for page in pages)
    finally:
        desk.close()
    out, err = capfd.readouterr()
    told = stored_texts() + seen + caplog.text + out + err
    assert not [one for one in ("access", "refresh", "client") if f"canary-{one}" in told]
    assert "••••" in (Run.objects.get(id=desk.run).output or "").encode().decode("unicode_escape")


def test_a_lapsed_token_is_refreshed_once_and_the_call_repeated(
    by_hand: None, cast: object, bea: Client, server: TokenServer
) -> None:
    desk = Desk(_agent(server, _crm(server)))
    try:
        desk.approve(bea)
        server.lapse()
        assert desk.approve(bea).status == "completed"
    finally:
        desk.close()
    assert server.grants == ["client_credentials"] * 2
    assert server.calls == ["canary-access-0", "canary-access-0", "canary-access-1"]


_WORKER = """
import sys
from agents.credentials import Environment, File, OAuth

crm = OAuth(
    name="crm", token_url=sys.argv[1], client_id=sys.argv[2],
    client_secret=Environment("crm_secret", "CRM_SECRET"), refresh_token=File("refresh", sys.argv[3]),
)
for _ in range(5):
    crm.fetch(60.0)
"""


def test_processes_that_refresh_at_once_lose_no_replaced_token(
    server: TokenServer, tmp_path: Path
) -> None:
    refresh = tmp_path / "refresh"
    refresh.write_text("canary-refresh-1\n")
    server.rotates = True
    command = [sys.executable, "-c", _WORKER, f"{server.url}/token", CLIENT, str(refresh)]
    workers = [subprocess.Popen(command) for _ in range(3)]
    assert [one.wait() for one in workers] == [0, 0, 0]
    assert (len(server.issued), {refresh.read_text()}) == (15, server.refresh)
    assert refresh.stat().st_mode & 0o777 == 0o600
    assert {one.name for one in tmp_path.iterdir()} == {"refresh", ".refresh.lock"}


def test_a_token_that_cannot_be_kept_is_named_with_its_remedy(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Path("/proc/sys/kernel/hostname")  # no account can make a file beside it
    monkeypatch.setenv("CRM_REFRESH", place.read_text().strip())
    server.rotates = True
    for source, said, advice in (
        (
            Environment("crm_refresh", "CRM_REFRESH"),
            "CRM_REFRESH cannot be",
            "give the tool a File",
        ),
        (File("crm_refresh", str(place)), f"{place} cannot be", f"write into {place.parent}: let"),
    ):
        server.withdraw(place.read_text().strip())
        crm = replace(_crm(server), refresh_token=source)
        assert crm.fetch(5.0).value in server.valid
        assert said in caplog.text
        with pytest.raises(CredentialMissing, match=advice) as caught:
            crm.fetch(5.0)
        assert "canary" not in caplog.text + str(caught.value)


def test_a_token_is_sent_only_if_the_next_one_can_be_kept(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = tmp_path / "refresh"
    refresh.write_text("canary-refresh-1\n")
    crm, room = _crm(server, refresh), tmp_path / ".refresh.new"
    room.mkdir()
    with pytest.raises(NotDone, match="no file can be written beside"):
        crm.fetch(5.0)
    room.rmdir()
    monkeypatch.setattr(credentials, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(credentials, "POLL_SECONDS", -1.0)  # a second try fails
    with (
        credentials.lock_token_file("crm", str(refresh), 5.0),
        pytest.raises(NotDone, match="another call refreshes the credential crm"),
    ):
        crm.fetch(3600.0)
    assert server.grants == []
    with credentials.lock_token_file("crm", str(refresh), 5.0) as kept:
        refresh.write_text("of a person\n")
        kept.keep("canary-refresh-1", "of the server")
    assert refresh.read_text() == "of a person\n"


def test_each_provider_says_what_a_person_must_do(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "canary-vault-token")
    token = Environment("vault_token", "VAULT_TOKEN")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # is not read
    monkeypatch.setenv("NO_PROXY", "")
    url = f"{server.url}/v1/secret/data/crm"
    vault = Vault(name="crm", url=url, field="password", token=token)
    for _ in range(2):
        assert credentials.resolve_credentials([vault], 5.0) == {"crm": "canary-vault-password"}
        server.vault = {"password": "canary-vault-password"}  # version 1
    for kept in (None, ["password"], {"password": ""}, {"password": 7}):
        server.vault = kept
        with pytest.raises(CredentialMissing, match=f"put password at {url}"):
            credentials.resolve_credentials([vault], 5.0)
    assert credentials.resolve_credentials([_crm(server)], 5.0) == {"crm": "canary-access-0"}
    assert server.scopes == [[]]
    credentials.forget_tokens()
    monkeypatch.setenv("VAULT_TOKEN", "canary-other")
    (binary := tmp_path / "binary").write_bytes(b"\xff")
    monkeypatch.delenv("CRM_SECRET")
    for credential, said in (
        (Environment("crm", "CRM_SECRET"), "set CRM_SECRET for the workers"),
        (File("crm", str(tmp_path / "none")), f"put it into {tmp_path / 'none'}"),
        (File("crm", str(binary)), f"put it into {binary}"),
        (replace(_crm(server), client_secret=token), "replace VAULT_TOKEN"),
        (_crm(server), "set CRM_SECRET for the workers"),
        (vault, f"put password at {url}"),
    ):
        with pytest.raises(CredentialMissing, match=said) as caught:
            credentials.resolve_credentials([credential], 5.0)
        assert "canary" not in str(caught.value)
    gone = Vault(name="crm", url="http://127.0.0.1:9/v1/x", field="a", token=token)
    with pytest.raises(NotDone, match="cannot be reached"):
        credentials.resolve_credentials([gone], 5.0)
    assert "canary" not in repr(_crm(server).fetch) + repr(vault.fetch)


class _Broken:
    """A credential of an author that fails with a secret in its error."""

    name = "crm"

    def fetch(self, seconds: float) -> Any:
        raise ValueError("canary")


def test_no_failure_to_fetch_quotes_a_secret_or_ends_the_worker(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "canary-é")
    token = Environment("vault_token", "VAULT_TOKEN")
    cases: list[tuple[Credential, str]] = [
        (_Broken(), "cannot be fetched: ValueError"),
        (Vault(name="crm", url=server.url, field="a", token=token), "cannot be fetched: Unicode"),
    ]
    for credential, said in cases:
        with pytest.raises(NotDone, match=said) as caught:
            credentials.resolve_credentials([credential], 5.0)
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (500, b'{"access_token": "canary"}', "answered with status 500"),
        (302, b'{"access_token": "canary"}', "answered with status 302"),
        (200, b"canary", "answered with status 200"),
        (200, b"[" * 100_000, "answered with status 200"),
        (200, b'["canary"]', "answered with status 200"),
        (200, b'{"access_token": ["canary"]}', "has no access_token"),
        (200, b'{"access_token": ""}', "has no access_token"),
        (200, b"x" * 300_000, "is too long"),
    ],
)
def test_an_answer_that_has_no_token_is_none(
    server: TokenServer, status: int, body: bytes, why: str
) -> None:
    server.said = (status, body)
    with pytest.raises(NotDone, match=why) as caught:
        credentials.resolve_credentials([_crm(server)], 5.0)
    assert "canary" not in str(caught.value)
    with pytest.raises(NotDone, match="did not end its answer in time"):
        credentials._read("crm", httpx2.Response(200, content=iter([b"x"])), 0.0)


@pytest.mark.parametrize(
    ("lasts", "later", "again"),
    [(3600, 3569, True), (3600, 3570, False), (20, 0, False), ("3600", 0, False), (None, 0, False)],
)
def test_a_token_is_used_again_until_shortly_before_its_end(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, lasts: Any, later: float, again: bool
) -> None:
    clock = Mock(return_value=0.0)
    monkeypatch.setattr(credentials, "time", Mock(monotonic=clock))
    crm = replace(_crm(server), scope="read")
    server.lasts = lasts
    network.load_authorities()
    with monkeypatch.context() as patch:
        patch.setattr(
            ssl.SSLContext, "load_verify_locations", Mock(side_effect=MemoryError)
        )  # slow
        first = credentials.resolve_credentials([crm], 5.0)
    clock.return_value = later
    assert (credentials.resolve_credentials([crm], 5.0) == first) is again
    assert server.scopes == [["read"]] * len(server.grants)
    server.lasts = 0
    assert first not in (
        credentials.resolve_credentials([crm], 5.0, anew=True),
        credentials.resolve_credentials([crm], 5.0),
    )


def test_no_error_of_a_tool_quotes_its_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_SECRET", "canary/é+1\n")

    @tool(effect="read", credentials=[Environment("crm", "CRM_SECRET")])
    def look_up(context: ToolContext, text: str) -> str:
        """Looks up."""
        secret = context.credentials["crm"]
        raise ToolError(
            f"{text}: {secret!r} {json.dumps(secret)} {quote(secret, '')} {secret.strip()}"
        )

    outcome = handler_of(spec_of("clerk", tools=[look_up])).perform(
        tool_request("clerk", "look_up", {"text": "why"})
    )
    assert isinstance(outcome, ToolFailure)
    assert outcome.error.startswith("why: ")
    assert "canary" not in outcome.error


def test_a_tool_is_not_called_once_getting_its_credentials_took_all_its_time(
    server: TokenServer,
) -> None:
    handler = handler_of(_agent(server, Environment("crm", "CRM_SECRET")))
    outcome = handler.perform(tool_request("clerk", "look_up", {"text": "a"}, deadline=0.0))
    assert isinstance(outcome, ToolFailure)
    assert (outcome.retryable, server.calls) == (True, [])


def test_a_tool_with_credentials_takes_its_context() -> None:
    crm: Any = Environment("crm", "CRM")
    cases: dict[str, Any] = {
        "context: ToolContext": [crm],
        "two of": [crm, crm],
        "of Credential": ["crm"],
    }
    for said, given in cases.items():
        with pytest.raises(DefinitionError, match=said):

            @tool(credentials=given)
            def look_up(text: str) -> str:
                """Looks up."""
                return text
