"""A directory that provisions with a token."""

import json
from typing import Any

from django.test import Client

from approvals.people import directories

TYPE = "application/scim+json"
ZOE = {
    "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
    "userName": "zoe@acme.example",
    "externalId": "00u1",
    "name": {"givenName": "Zoe", "familyName": "Novak"},
    "emails": [{"value": "zoe@acme.example", "primary": True}],
}
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class Provisioner:
    """A directory with a token."""

    def __init__(self, name: str = "acme", by: str | None = None) -> None:
        _, self.token = directories.create_token(name, days=1, actor=by)
        self.client = Client(headers={"authorization": f"Bearer {self.token}"})

    def send(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        text = body if isinstance(body, str) else json.dumps(body)
        answer = self.client.generic(
            method, f"/scim/v2{path}", "" if body is None else text, content_type=TYPE
        )
        assert answer.status_code == status, (answer.status_code, answer.content)
        if answer.content:
            assert answer["Content-Type"] == TYPE
        return answer.json() if answer.content else None

    def create(self, status: int = 201, **fields: Any) -> Any:
        return self.send("POST", "/Users", {**ZOE, **fields}, status)

    def patch(self, path: str, *operations: dict[str, Any], status: int = 204) -> Any:
        return self.send("PATCH", path, {"schemas": [PATCH], "Operations": operations}, status)

    def group(self, name: str, *members: str, status: int = 201) -> Any:
        body = {
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"],
            "displayName": name,
            "members": [{"value": member} for member in members],
        }
        return self.send("POST", "/Groups", body, status)
