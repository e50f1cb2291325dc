"""Sends one HTTP request of an agent, and refuses addresses when the connection is made.

A name may resolve to another address each time, so the address that was checked is the one that is connected to. The
certificate is still checked against the name. A request goes only to allowed sites: scheme, host and port.
"""

import codecs
import json
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from agents.sdk import FailureCause, NotDone, ToolContext, ToolError
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import read_json
from runtime.network import (
    AddressRefused,
    is_public,
    load_authorities,
    resolve_addresses,
    retry_after_seconds,
)

PORTS = {"http": 80, "https": 443}

Site = tuple[str, str, int]  # scheme, host, port
MAX_BODY = 256 * 1024  # bytes of an answer, decompressed
MAX_REDIRECTS = 5
QUOTED = 500  # characters of an answer that an error quotes
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110
# As Python names what https://encoding.spec.whatwg.org lists
_CHARSETS = re.compile(
    r"utf-8(-sig)?|utf-16(-[bl]e)?|ascii|iso8859-\d+|cp\d+|koi8-[ru]|mac-\w+|shift_jis|euc_(jp|kr)|iso2022_jp"
    r"|gb2312|gbk|gb18030|big5"
)
NOT_NOW = (408, 425, 429)  # the server did not take the request; it may later


class RequestCheck:
    """Sends each request to an allowed site at an address that it checked itself; also after each redirect.

    The headers `own_headers` go to the site of the first request alone. All names are resolved within `seconds`.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        *,
        private: bool,
        seconds: float,
        own_headers: Collection[str] = (),
    ) -> None:
        self._sites = sites
        self._until = time.monotonic() + seconds
        self._private = private
        self._own_headers = own_headers
        self._first = ""

    @contextmanager
    def put_address(self, request: httpx2.Request) -> Iterator[None]:
        """Put the checked address of its host into the request. Raises ToolError if there is none."""
        if reason := find_site_refusal(str(request.url), self._sites):
            raise ToolError(reason)
        host = request.url.raw_host.decode("ascii")
        site = f"{request.url.scheme}://{request.url.netloc.decode()}"
        self._first = self._first or site
        if site != self._first:
            for name in {name.lower() for name in self._own_headers} - {"host"}:
                request.headers.pop(name, None)
        try:
            addresses = resolve_addresses(
                host,
                request.url.port,
                lambda address: self._private or is_public(address),
                seconds=max(self._until - time.monotonic(), 0),
            )
        except AddressRefused as exc:
            raise ToolError(f"url: {exc}") from exc
        except OSError as exc:
            raise NotDone(f"{host} has no address: {exc}", cause=FailureCause.NETWORK) from exc
        address = addresses[0]
        request.extensions = {**request.extensions, "sni_hostname": host}
        named_url = request.url
        request.url = named_url.copy_with(host=address)
        try:
            yield
        finally:
            request.url = named_url  # a relative redirect belongs to the name


class CheckedTransport(httpx2.HTTPTransport):
    """Connects as a RequestCheck says."""

    def __init__(self, check: RequestCheck) -> None:
        super().__init__(**build_connection_options())
        self._check = check

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the checked address of its host. Raises ToolError if there is none."""
        with self._check.put_address(request):
            return super().handle_request(request)


def build_connection_options() -> dict[str, Any]:
    """Return the options of a transport whose addresses are checked.

    A kept connection was checked for one name, and could be used again for another at the same address.
    """
    limits = httpx2.Limits(max_keepalive_connections=0)
    return {"verify": load_authorities(), "limits": limits, "trust_env": False}


def parse_site(url: str) -> Site:
    """Return the scheme, host and port of a URL. Raises ValueError if it is none that a request may go to."""
    parts = urlsplit(url)
    scheme, host = parts.scheme, (parts.hostname or "").rstrip(".")  # in lower case already
    if scheme not in PORTS or not host or "@" in parts.netloc:
        raise ValueError("it needs http or https and a host, without a user name")
    return scheme, host, parts.port or PORTS[scheme]


def find_site_refusal(url: str, sites: Sequence[Site]) -> str | None:
    """Say why a request to the URL is refused, or return None."""
    try:
        site = parse_site(url)
    except ValueError as exc:
        return f"url: {exc}"
    if site in sites:
        return None
    allowed = ", ".join(f"{scheme}://{host}:{port}" for scheme, host, port in sites)
    return f"url: {site[1]}:{site[2]} by {site[0]} is not allowed; allowed are {allowed}"


def request(
    context: ToolContext,
    method: str,
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    sites: Sequence[Site],
    private: bool,
) -> dict[str, Any]:
    """Send the request. Return status, type and body of the answer, and whether the body was cut.

    A 4xx is a ToolError. Raises NotDone if certainly nothing happened, or if a request that only reads may be sent
    again. Any other error leaves the outcome unknown.
    """
    reads = method in ("GET", "HEAD")
    content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    require_headers(headers)
    sent_headers = {
        **headers,
        **({"Content-Type": "application/json"} if content is not None else {}),
    }
    seconds = context.remaining()
    check = RequestCheck(sites, private=private, seconds=seconds, own_headers=headers)
    with httpx2.Client(
        transport=CheckedTransport(check),
        timeout=seconds,
        max_redirects=MAX_REDIRECTS,
        trust_env=False,
        event_hooks={"response": [_refuse_malformed_redirect] if reads else []},
    ) as client:
        try:
            with client.stream(
                method, url, content=content, headers=sent_headers, follow_redirects=reads
            ) as response:
                answer = _build_answer(context, response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise NotDone(f"{url} cannot be reached: {exc}", cause=FailureCause.NETWORK) from exc
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects) as exc:
            raise ToolError(f"url: {exc}") from exc
    status = response.status_code
    if status < 400:
        return answer
    message = f"{response.url} answered {status}: {str(answer['body'])[:QUOTED]}"
    if status in NOT_NOW or (reads and status >= 500):
        cause = FailureCause.LIMIT if status == 429 else FailureCause.PROVIDER
        raise NotDone(
            message, after=retry_after_seconds(response.headers.get("Retry-After")), cause=cause
        )
    if status < 500:
        raise ToolError(message)
    raise RuntimeError(message)


def _refuse_malformed_redirect(response: httpx2.Response) -> None:
    """Raise ToolError if the Location is not a URL. With backslashes some programs read a path, others a host."""
    if not response.has_redirect_location:
        return
    location = response.headers["Location"]
    with suppress(httpx2.InvalidURL):
        httpx2.URL(location)
        if "\\" not in location:
            return
    raise ToolError(f"url: {response.url} redirects to {location[:QUOTED]!r}, which is not a URL")


def require_headers(headers: Mapping[str, str]) -> None:
    """Raise NotDone for a header that cannot be sent: the client's own error would quote it, and be in doubt."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise NotDone(f"a header cannot be named {name!r}", cause=FailureCause.SETUP)
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise NotDone(
                f"the header {name} has spaces or line breaks around it, or a character that cannot be sent",
                cause=FailureCause.SETUP,
            )


def _build_answer(context: ToolContext, response: httpx2.Response) -> dict[str, Any]:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_BODY:
            break
        if time.monotonic() > context.began + context.deadline:
            raise TimeoutError("the answer took longer than the deadline")
    cut = len(body) > MAX_BODY
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    # A charset that is none of the web may take minutes, or give no text.
    charset = "utf-8"
    with suppress(LookupError, ValueError):
        charset = codecs.lookup(response.charset_encoding or charset).name
    if not _CHARSETS.fullmatch(charset):
        charset = "utf-8"
    text = bytes(body[:MAX_BODY]).decode(charset, "replace")
    value: Any = text.replace("\x00", "\\0")
    if kind == "application/json" or kind.endswith("+json"):
        with suppress(ValueError, RecursionError, NotJson):  # a journal does not accept it as JSON
            value = read_json(text, "body")
    return {"status": response.status_code, "type": kind, "body": value, "cut": cut}
