"""The sites to which a request may go: scheme, host and port."""

from collections.abc import Sequence
from urllib.parse import urlsplit

PORTS = {"http": 80, "https": 443}

Site = tuple[str, str, int]  # scheme, host, port


def site_of(url: str) -> Site:
    """Return the scheme, host and port of a URL. Raises ValueError if it is none that a request may go to."""
    parts = urlsplit(url)
    scheme, host = parts.scheme, (parts.hostname or "").rstrip(".")  # in lower case already
    if scheme not in PORTS or not host or "@" in parts.netloc:
        raise ValueError("it needs http or https and a host, without a user name")
    return scheme, host, parts.port or PORTS[scheme]


def refusal(url: str, sites: Sequence[Site]) -> str | None:
    """Say why a request to the URL is refused, or return None."""
    try:
        site = site_of(url)
    except ValueError as exc:
        return f"url: {exc}"
    if site in sites:
        return None
    allowed = ", ".join(f"{scheme}://{host}:{port}" for scheme, host, port in sites)
    return f"url: {site[1]}:{site[2]} by {site[0]} is not allowed; allowed are {allowed}"
