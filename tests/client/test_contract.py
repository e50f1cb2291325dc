"""The client uses what the API has: its routes, parameters, and fields with their types, as in the OpenAPI document."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pydantic import BaseModel

from config.api import api
from config.env.environment import ROOT
from signoff_client import routes
from signoff_client.routes import Route

Document = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Document:
    content: Document = json.loads(json.dumps(api.get_openapi_schema(), default=str))
    return content


ROUTES = [value for value in vars(routes).values() if isinstance(value, Route)]


def _name(route: Route[Any]) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", ROUTES, ids=_name)
def test_the_api_has_the_route_with_its_parameters_and_fields(
    route: Route[Any], document: Document
) -> None:
    operation = document["paths"][f"/api/v1{route.path}"][route.method.lower()]
    query = {
        item["name"]: item["required"] for item in operation["parameters"] if item["in"] == "query"
    }
    assert set(route.query) <= set(query)
    assert {name for name, required in query.items() if required} <= set(route.query)
    if "requestBody" in operation:
        body = _resolve(operation["requestBody"]["content"]["application/json"]["schema"], document)
        assert set(route.body) <= set(body["properties"])
        assert set(body.get("required", ())) <= set(route.body)
    else:
        assert route.body == ()


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if issubclass(route.answer, BaseModel)], ids=_name
)
def test_the_answers_have_the_fields_with_their_types(
    route: Route[Any], document: Document
) -> None:
    operation = document["paths"][f"/api/v1{route.path}"][route.method.lower()]
    answers = [
        answer for status, answer in operation["responses"].items() if status in ("200", "201")
    ]
    assert answers
    ours = route.answer.model_json_schema()
    for answer in answers:
        theirs = answer["content"]["application/json"]["schema"]
        assert list(_differences(ours, ours, theirs, document, route.answer.__name__)) == []


def _differences(
    schema: Any, ours: Document, other: Any, document: Document, place: str
) -> Iterator[str]:
    """Yield each field of `schema` that the document does not promise with the same type."""
    schema, other = _resolve(schema, ours), _resolve(other, document)
    if "properties" in schema:
        for name, field in schema["properties"].items():
            if name not in other.get("required", ()):
                yield f"{place}.{name} is missing"
            else:
                yield from _differences(
                    field, ours, other["properties"][name], document, f"{place}.{name}"
                )
    elif schema.get("type") == "array" == other.get("type"):
        yield from _differences(schema["items"], ours, other["items"], document, f"{place}[]")
    elif _type(schema) != _type(other):
        yield f"{place} is {_type(other)}, not {_type(schema)}"


def _type(schema: Document) -> Any:
    """Return what a value may be, without titles, texts and limits."""
    options = [_type(option) for option in schema.get("anyOf", ())]
    return sorted(options) if options else f"{schema.get('type', '')} {schema.get('format', '')}"


def _resolve(schema: Document, root: Document) -> Document:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    for part in reference.removeprefix("#/").split("/"):
        root = root[part]
    return root


def test_the_package_needs_nothing_of_the_server() -> None:
    code = (
        "import sys, signoff_client.client\n"
        "print(sorted({'django', 'config', 'runtime', 'approvals', 'agents'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT / "client", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The package


def test_the_wheel_has_all_modules_and_the_command(tmp_path: Path) -> None:
    words = ["-m", "uv", "build", "--wheel", "--offline", "--out-dir", str(tmp_path), "client"]
    environment = os.environ | {"UV_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert b"signoff = signoff_client.command:main" in archive.read(entry_points)
    modules = {
        f"signoff_client/{path.name}" for path in (ROOT / "client/signoff_client").glob("*.py")
    }
    assert modules | {"signoff_client/py.typed"} <= names
