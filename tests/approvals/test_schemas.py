"""The schema of a tool is stored once; a request refers to it by its digest."""

import json

import pytest

from approvals.errors import TamperedWith
from approvals.models import Request, ToolSchema
from approvals.queries import requests
from approvals.requests import schemas, verification
from runtime.core.digest import sha256_of
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db

SCHEMA = seeds.SCHEMA


@pytest.fixture(autouse=True)
def fresh() -> None:
    """A process that has read no schema yet."""
    schemas._read.cache_clear()


def test_two_requests_of_a_tool_share_its_schema(bea: Actor) -> None:
    found = [seeds.pending() for _ in range(2)]
    assert {one.schema for one in found} == {sha256_of(SCHEMA)}
    assert [json.loads(row.body) for row in ToolSchema.objects.all()] == [SCHEMA]
    assert requests.approval(found[0].id, actor=bea).schema == SCHEMA


def test_a_request_of_the_release_before_has_its_schema_as_text(bea: Actor) -> None:
    request = seeds.pending()
    Request.objects.filter(pk=request.pk).update(schema=json.dumps(SCHEMA))
    assert requests.approval(request.id, actor=bea).schema == SCHEMA
    seeds.decide(request, bea)


@pytest.mark.parametrize("body", [None, "{}", "[" * 100_000])
def test_a_request_without_its_schema_is_not_decided(bea: Actor, body: str | None) -> None:
    request = seeds.pending()
    if body is None:
        ToolSchema.objects.all().delete()
    else:
        ToolSchema.objects.update(body=body)
    assert "schema" in (verification.fault(request) or "")
    assert requests.approval(request.id, actor=bea).schema is None
    with pytest.raises(TamperedWith):
        seeds.decide(request, bea)


def test_a_request_with_another_schema_is_not_decided(bea: Actor) -> None:
    request, other = seeds.pending(), {"type": "object"}
    ToolSchema.objects.create(digest=sha256_of(other), body=json.dumps(other))
    Request.objects.filter(pk=request.pk).update(schema=sha256_of(other))
    with pytest.raises(TamperedWith):
        seeds.decide(request, bea)
