"""HTTP requests of agents to real servers on loopback: which sites, which addresses, and what an answer means."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from unittest.mock import Mock

import pytest
from httpx2 import Request, Response

from agents.errors import DefinitionError, NotDone, ToolError
from agents.sdk.spec import ToolSpec
from agents.tools import http_client
from agents.tools.http import http_request
from agents.tools.http_client import MAX_BODY, QUOTED
from runtime.core.values.enums import EffectClass, FailureCause, Risk
from runtime.network import MAX_RETRY_SECONDS, is_public, retry_after_seconds
from tests.agents.conftest import context
from tests.support.loopback import respond, serving


@dataclass(slots=True)
class Site:
    """A server with an answer for each path, and the requests that it received."""

    url: str = ""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def says(self, path: str, body: Any = b"", status: int = 200, **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if not isinstance(body, bytes):
            body, named = json.dumps(body).encode(), {"Content-Type": "application/json", **named}
        self.answers[path] = (status, named, body)
        return self.url + path


@contextmanager
def served() -> Iterator[Site]:
    site = Site()

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        site.requests.append((request.command, request.path, dict(request.headers), body))
        status, headers, said = site.answers.get(request.path, (404, {}, b"not here"))
        respond(request, status, said, **headers)

    with serving(answer) as site.url:
        yield site


@pytest.fixture
def site() -> Iterator[Site]:
    with served() as one:
        yield one


@pytest.fixture
def other() -> Iterator[Site]:
    with served() as one:
        yield one


def _get(*sites: Site, **given: Any) -> ToolSpec:
    return http_request("GET", sites=[site.url for site in sites], private=True, **given)


def test_a_tool_has_the_effect_and_the_gate_of_its_method() -> None:
    made = [http_request(m, sites=["https://a.example/"]) for m in ("GET", "PUT", "POST")]
    assert [(one.name, one.effect, one.approval, one.risk) for one in made] == [
        ("http_get", EffectClass.READ, False, Risk.LOW),
        ("http_put", EffectClass.IDEMPOTENT, True, Risk.MEDIUM),
        ("http_post", EffectClass.WRITE, True, Risk.MEDIUM),
    ]
    assert made[2].sentence == "Send {body} to {url} (POST)"
    keyed: dict[str, Any] = {
        "sites": ["https://a.example"],
        "key_header": "Idempotency-Key",
        "approval": False,
    }
    assert http_request("GET", **keyed).effect is EffectClass.READ
    named = http_request("POST", name="pay", description="Pay.", risk="high", **keyed)
    assert (named.name, named.description, named.effect) == ("pay", "Pay.", EffectClass.IDEMPOTENT)
    assert (named.approval, named.risk) == (False, Risk.HIGH)
    assert [sorted(one.schema["properties"]) for one in made] == [["url"], *2 * [["body", "url"]]]


@pytest.mark.parametrize(
    ("method", "sites", "why"),
    [
        ("TRACE", ["https://a.example"], "method must be 'GET'"),
        ("GET", [], "at least one site"),
        ("GET", ["a.example"], "http or https"),
        ("GET", ["https://a.example/path"], "without a path"),
        ("GET", ["https://a.example?path"], "without a path"),
        ("GET", ["https://me@a.example"], "without a user name"),
    ],
)
def test_a_wrong_definition_is_refused(method: Any, sites: list[str], why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        http_request(method, sites=sites)


def test_an_answer_is_json_or_text_and_is_cut(site: Site) -> None:
    get = _get(site)
    read = {"status": 200, "type": "application/json", "body": {"euros": 40}, "cut": False}
    named = site.says("/json", {"euros": 40}, Content_Type="Application/JSON ; charset=utf-8")
    assert get(context(), named) == read
    for body, kind, value in (
        ({"euros": 40}, "application/problem+json", {"euros": 40}),
        ([2**60], "application/json", ["1152921504606846976"]),  # no number of a journal
        ('["Zoë"]'.encode(), "text/plain", '["Zoë"]'),
        (b"Zo\xeb", "text/plain; charset=latin-1", "Zoë"),
        (b"40 \x80", "text/plain; charset=windows-1252", "40 €"),
        ("Zoë".encode(), "text/plain; charset=none-such", "Zoë"),
        (b"Zoe", "text/plain; charset=hex", "Zoe"),
        (b"Zo-e", "text/plain; charset=punycode", "Zo-e"),
        (b"a\0b", "text/plain", "a\\0b"),
    ):
        assert get(context(), site.says("/one", body, Content_Type=kind))["body"] == value
    for size, zero, cut in ((MAX_BODY, b"x", False), (MAX_BODY + 1, b"\0", True)):
        large = get(context(), site.says("/large", zero + b"x" * (size - 1)))
        assert (len(large["body"].replace("\\0", "0")), large["cut"]) == (MAX_BODY, cut)
        assert "\0" not in large["body"]
    assert not any(body or "Content-Type" in headers for _, _, headers, body in site.requests)


def test_an_answer_is_read_no_further_than_its_limits() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x" * (MAX_BODY + 1)
        pytest.fail("the rest is not read")

    assert http_client._build_answer(context(), Response(200, content=chunks()))["cut"]
    late = replace(context(), began=time.monotonic() - 100, deadline=99)
    with pytest.raises(TimeoutError):
        http_client._build_answer(late, Response(200, content=iter([b"x"])))


def test_a_write_carries_its_body_its_headers_and_its_key(site: Site) -> None:
    put = http_request(
        "PUT",
        sites=[site.url],
        private=True,
        headers=lambda: {"Authorization": "Bearer abc"},
        key_header="Idempotency-Key",
    )
    put(context("r/0/c1.0"), site.says("/one", {}), {"euros": 40})
    ((method, _, headers, body),) = site.requests
    assert (method, json.loads(body)) == ("PUT", {"euros": 40})
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer abc"
    assert headers["Idempotency-Key"] == "r/0/c1.0"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://elsewhere.example/", "elsewhere.example:443 by https is not allowed"),
        ("http://shop.example:8080/", "shop.example:8080 by http is not allowed"),
        ("https://shop.example@elsewhere.example/", "without a user name"),
        ("ftp://shop.example/", "http or https"),
        ("https:///etc/passwd", "http or https"),
        ("https://shop.example.elsewhere.example/", "is not allowed"),
    ],
)
def test_another_site_is_refused_before_a_person_is_asked(url: str, why: str) -> None:
    post = http_request("POST", sites=["https://shop.example"])
    assert post.precondition is not None
    assert why in post.precondition(url=url)
    assert post.precondition(url="https://SHOP.example.:443/x") is None
    with pytest.raises(ToolError, match=why):
        post(context(), url, {})


def test_a_name_at_a_private_address_is_refused_each_time(site: Site, monkeypatch: Any) -> None:
    port = int(site.url.rpartition(":")[2])
    resolved = iter(["93.184.215.14", "127.0.0.1"])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (next(resolved), port))]
    )
    monkeypatch.setattr("agents.tools.http_client.is_public", lambda a: a != "127.0.0.1")
    seen: list[str] = []

    def redirect(_: object, request: Request) -> Response:
        seen.append(request.url.host)
        return Response(302, headers={"Location": "/again"}, request=request)

    monkeypatch.setattr("httpx2.HTTPTransport.handle_request", redirect)
    get = http_request("GET", sites=[f"http://shop.example:{port}"])
    with pytest.raises(ToolError, match=r"shop.example is at 127.0.0.1, which is not a public"):
        get(context(), f"http://shop.example:{port}/")
    assert seen == ["93.184.215.14"]  # the address that was checked is the one that is used
    assert site.requests == []


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:4700::1", True),
        ("64:ff9b::5db8:d70e", True),
        ("::ffff:93.184.215.14", True),
        *(
            (one, False)
            for one in (
                *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "::1"),
                *("100.64.0.1", "240.0.0.1", "224.0.0.1", "255.255.255.255", "fe80::1%eth0"),
                *(
                    "fc00::1",
                    "::ffff:127.0.0.1",
                    "2002:7f00:1::",
                    "64:ff9b::a00:1",
                    "fec0::1",
                    "::7f00:1",
                    "64:ff9b:1::a00:1",
                    "::ffff:0:127.0.0.1",
                    "5f00::1",
                ),
            )
        ),
    ],
)
def test_only_addresses_of_the_public_internet_count_as_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("9" * 400, MAX_RETRY_SECONDS),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_SECONDS),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Wed, 01 Jan 2020 00:00:00 +99999999999999", None),
        ("soon", None),
        (None, None),
    ],
)
def test_a_server_asks_for_a_year_of_patience_at_most(
    header: str | None, seconds: float | None
) -> None:
    assert retry_after_seconds(header) == seconds


def test_a_redirect_is_followed_to_allowed_sites_alone(site: Site, other: Site) -> None:
    target = other.says("/there", {"ok": True})
    start = site.says("/start", status=302, Location=target)
    with pytest.raises(ToolError, match="is not allowed"):
        _get(site)(context(), start)
    assert other.requests == []
    own = {"Authorization": "Bearer abc", "X-Api-Key": "abc", "Host": "shop.example"}
    both = _get(site, other, headers=lambda: own)
    assert both(context(), start)["body"] == {"ok": True}
    assert own.items() <= site.requests[-1][2].items()
    assert not (own.keys() - {"Host"}) & other.requests[0][2].keys()
    assert other.requests[0][2]["Host"] in other.url
    loop = site.says("/loop", status=302, Location="/loop")
    with pytest.raises(ToolError, match="url: "):
        _get(site)(context(), loop)
    post = http_request("POST", sites=[site.url], private=True)
    assert post(context(), start, {})["status"] == 302  # a write is not sent twice
    assert len(other.requests) == 1


@pytest.mark.parametrize("location", [r"\\127.0.0.1\y", r"/\127.0.0.1/y", "http://[::1", "/a\tb"])
def test_a_malformed_redirect_is_refused_by_name(site: Site, location: str) -> None:
    start = site.says("/start", status=302, Location=location)
    with pytest.raises(ToolError, match=r"/start redirects to '.+', which is not a URL"):
        _get(site)(context(), start)
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        *(
            (lambda v=v: {"Key": v}, "the header Key")
            for v in (" canary", "canary\n", "canary\r\nX: y", "canaryé")
        ),
        (lambda: {"Ke y": "canary"}, "cannot be named 'Ke y'"),
        (lambda: {"key": {}}["canary"], "could not be made: KeyError"),
        (Mock(side_effect=NotDone("log in")), "^log in"),
    ],
)
def test_no_error_quotes_a_header_and_nothing_was_sent(site: Site, headers: Any, why: str) -> None:
    post = http_request("POST", sites=[site.url], headers=headers, private=True)
    with pytest.raises(NotDone, match=why) as caught:
        post(context(), site.says("/"), {})
    assert "canary" not in str(caught.value)
    assert site.requests == []


@pytest.mark.parametrize(
    ("method", "status", "error"),
    [
        ("GET", 500, NotDone),
        ("GET", 429, NotDone),
        ("GET", 400, ToolError),
        ("POST", 429, NotDone),
        ("POST", 422, ToolError),
        ("POST", 500, RuntimeError),  # it may have happened
    ],
)
def test_a_refusal_is_certain_in_doubt_or_for_the_model(
    site: Site, method: Any, status: int, error: type[Exception]
) -> None:
    url = site.says("/", b"no" + b"x" * QUOTED, status, Retry_After="7")
    send = http_request(method, sites=[site.url], private=True)
    with pytest.raises(error, match=f"answered {status}: nox{{{QUOTED - 2}}}$") as caught:
        send(context(), url, *([] if method == "GET" else [{}]))
    if isinstance(caught.value, NotDone):
        cause = FailureCause.LIMIT if status == 429 else FailureCause.PROVIDER
        assert (caught.value.after, caught.value.cause) == (7, cause)


def test_a_name_service_that_never_answers_is_left_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20) and [])
    post = http_request("POST", sites=["https://slow.example"])
    call = replace(context(), deadline=0.5)
    with pytest.raises(NotDone, match=r"slow.example has no address: .* not resolved in time"):
        post(call, "https://slow.example/", {})
    over.set()
    assert time.monotonic() - call.began < 10


def test_a_server_that_is_away_did_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    post = http_request("POST", sites=[url], private=True)
    with pytest.raises(NotDone, match="cannot be reached"):
        post(context(), url, {})
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=OSError("unknown")))
    with pytest.raises(NotDone, match=r"127.0.0.1 has no address: unknown"):
        post(context(), url, {})
