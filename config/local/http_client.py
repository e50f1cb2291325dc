"""Sends the launcher's requests to the application that it started, over loopback without a proxy."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class Unreachable(Exception):
    """The application did not answer in time."""


def request(
    url: str, method: str, path: str, *, token: str = "", body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Send a request. Return the status and the JSON of the answer (None for other content). Raise Unreachable."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body)
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error)) from error
    finally:
        connection.close()
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, None
