"""HTTP requests of agents, to the sites that an author allows. See `agents.tools.http_client` for how they are made."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from agents.errors import DefinitionError, NotDone, ToolError
from agents.sdk import ToolContext, mistakes, tool
from agents.sdk.spec import Seconds, ToolSpec
from agents.tools.http_client import Site, find_site_refusal, parse_site
from runtime.core.values.enums import EffectClass, FailureCause, Risk

Method = Literal["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"]

MAX_URL = 2_000  # characters
# RFC 9110, section 9.2: the first two only read, and a second of the next two changes nothing more.
EFFECTS = {
    "GET": EffectClass.READ,
    "HEAD": EffectClass.READ,
    "PUT": EffectClass.IDEMPOTENT,
    "DELETE": EffectClass.IDEMPOTENT,
    "POST": EffectClass.WRITE,
    "PATCH": EffectClass.WRITE,
}

Url = Annotated[str, Field(min_length=1, max_length=MAX_URL, description="the whole address")]


@mistakes.record_mistakes
def http_request(
    method: Method,
    *,
    sites: Sequence[str],
    name: str | None = None,
    description: str | None = None,
    headers: Callable[[], Mapping[str, str]] | None = None,
    key_header: str | None = None,
    private: bool = False,
    approval: bool | Callable[..., bool] | None = None,
    risk: Risk | str | Callable[..., Risk | str] | None = None,
    deadline: Seconds = 30.0,
) -> ToolSpec:
    """Make a tool with which an agent sends HTTP requests of one method to `sites` and nowhere else.

    A site is a scheme, a host and perhaps a port, such as `https://api.example.com`. The model gives the URL, and for
    PUT, POST and PATCH a body, which is sent as JSON. The result is `{"status": …, "type": …, "body": …, "cut": …}`,
    where the body is JSON or text and `cut` says that it was longer than 256 KB. Redirects are followed for GET and
    HEAD alone, at most five, each to one of the sites. An address that is not public is refused when the connection
    is made, unless `private` is true. Proxy variables are not read.

    `headers` is called for each request, so that a token stays out of the code. The function's headers go to a site's
    own answers only, not along with a redirect to another host. `key_header` names the header in which the other side
    expects an idempotency key, which makes a POST or PATCH idempotent. All but GET and HEAD need approval, unless
    `approval` says otherwise, at medium risk. Raises DefinitionError if the definition is invalid.
    """
    label = f"tool {name or method}"
    allowed = tuple(_parse_site(site, label) for site in sites)
    if not allowed:
        raise DefinitionError(f"{label}: sites must name at least one site")
    reads = EFFECTS[method] is EffectClass.READ

    def send(context: ToolContext, url: str, body: Any = None) -> dict[str, Any]:
        from agents.tools.http_client import request

        if reason := find_site_refusal(url, allowed):
            raise ToolError(reason)
        sent_headers: dict[str, str] = {}
        try:
            sent_headers |= headers() if headers else {}
        except (NotDone, ToolError):
            raise
        except Exception as exc:  # no request was sent; its error may quote a secret
            reason = f"the headers could not be made: {type(exc).__name__}"
            raise NotDone(reason, cause=FailureCause.SETUP) from None
        if key_header:
            sent_headers[key_header] = context.key
        return request(
            context, method, url, body, headers=sent_headers, sites=allowed, private=private
        )

    def read(context: ToolContext, url: str) -> dict[str, Any]:
        return send(context, url)

    def write(context: ToolContext, url: str, body: Any) -> dict[str, Any]:
        return send(context, url, body)

    has_body = method in ("PUT", "POST", "PATCH")
    function = write if has_body else read
    function.__name__ = name or f"http_{method.lower()}"
    purpose = f"Send an HTTP {method} request to {' or '.join(sites)}."
    function.__doc__ = description or f"{purpose} Returns status, type and body of the answer."
    function.__annotations__ = {"context": ToolContext, "url": Url, "return": dict[str, Any]} | (
        {"body": Any} if has_body else {}
    )
    return tool(
        effect=EffectClass.IDEMPOTENT if key_header and not reads else EFFECTS[method],
        approval=not reads if approval is None else approval,
        risk=risk or (Risk.LOW if reads else Risk.MEDIUM),
        sentence=f"Send {{body}} to {{url}} ({method})" if has_body else f"{method} {{url}}",
        precondition=lambda url: find_site_refusal(url, allowed),
        deadline=deadline,
    )(function)


def _parse_site(text: str, label: str) -> Site:
    try:
        site = parse_site(text)
    except ValueError as exc:
        raise DefinitionError(f"{label}: sites: {text!r}: {exc}") from exc
    if urlsplit(text).path.strip("/") or urlsplit(text).query:
        raise DefinitionError(f"{label}: sites: {text!r}: name a site, without a path")
    return site
