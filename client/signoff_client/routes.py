"""All that the client uses of the API: the routes with their parameters, and the fields of bodies and answers.

A request can be made from this table alone, and a test compares the table with the OpenAPI document.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from signoff_client.answers import Approval, ApprovalPage, JournalPage, Run, RunPage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[T]):
    """An operation. A `repeatable` one is sent again if its answer is lost, because the second time changes nothing.

    The answer is read as JSON, or left as it is if it is to be `bytes`.
    """

    method: str
    path: str
    answer: type[T]
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    repeatable: bool = True

    def request(self, *, id: Any = None, **values: Any) -> "ApiRequest[T]":
        """Return the request with these values; a parameter that is None is left out, a field is null."""
        unknown = values.keys() - {*self.query, *self.body}
        assert not unknown, f"{self.path} has no {unknown}"
        path = re.sub(r"\{\w+\}", lambda _: quote(str(id), safe=""), self.path)
        return ApiRequest(
            route=self,
            path=path,
            query={name: str(values[name]) for name in self.query if values.get(name) is not None},
            body={name: values[name] for name in self.body if name in values},
        )

    def read(self, content: bytes) -> T:
        """Return the value of an answer. Raise pydantic's ValidationError if it is none."""
        if isinstance(content, self.answer):
            return content
        return TypeAdapter(self.answer).validate_json(content)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest(Generic[T]):
    """A request to be sent; `path` is below the address of the API."""

    route: Route[T]
    path: str
    query: Mapping[str, str]
    body: Mapping[str, Any]


START_RUN = Route(  # the same business key returns the same run
    method="POST",
    path="/runs",
    answer=Run,
    body=("agent", "input", "business_key", "thread", "budget"),
)
LIST_RUNS = Route(
    method="GET", path="/runs", answer=RunPage, query=("business_key", "limit", "cursor")
)
READ_RUN = Route(method="GET", path="/runs/{run}", answer=Run, query=("wait", "until"))
READ_JOURNAL = Route(
    method="GET", path="/runs/{run}/journal", answer=JournalPage, query=("limit", "cursor")
)
EXPORT_RUN = Route(  # an exported run returns its file again
    method="POST", path="/runs/{run}/export", answer=bytes
)
LIST_APPROVALS = Route(
    method="GET",
    path="/approvals",
    answer=ApprovalPage,
    query=("kind", "status", "run", "limit", "cursor"),
)
READ_APPROVAL = Route(method="GET", path="/approvals/{approval}", answer=Approval)
DECIDE = Route(
    method="POST",
    path="/approvals/{approval}/decision",
    answer=Approval,
    body=("verdict", "digest", "reason", "confirm", "result", "arguments", "grant"),
    repeatable=False,
)
ROUTES: tuple[Route[Any], ...] = (
    START_RUN,
    LIST_RUNS,
    READ_RUN,
    READ_JOURNAL,
    EXPORT_RUN,
    LIST_APPROVALS,
    READ_APPROVAL,
    DECIDE,
)
