"""A program that calls the API with a token."""

import json
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES


class Caller:
    """Calls as `owner`, with a new token of all scopes."""

    def __init__(self, owner: User) -> None:
        _, secret = tokens.create(owner, ALL_SCOPES)
        self.client = Client(headers={"authorization": f"Bearer {secret}"})

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1{path}")

    def post(self, path: str, body: Any = None, **how: Any) -> Any:
        return self.send(path, json.dumps({} if body is None else body), **how)

    def send(self, path: str, text: str | bytes, **how: Any) -> Any:
        """A body as it is, JSON or not."""
        return self.client.post(
            f"/api/v1{path}", text, **{"content_type": "application/json", **how}
        )


def code_of(answer: Any) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["code"]


def field_of(answer: Any) -> tuple[int, str | None]:
    """The status and the field that a refusal names."""
    return answer.status_code, answer.json().get("field")
