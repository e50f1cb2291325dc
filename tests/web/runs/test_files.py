"""Pictures and PDF files that tools take and return: who gets them, how they are sent, and other values."""

import re
from base64 import b64encode
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from runtime.core.values.enums import EffectClass
from runtime.core.values.json_values import MAX_FILE, file_of, file_value
from runtime.models import BlobReference
from runtime.ports.effects import ToolResult
from tests.support import seeds
from tests.support.fake_ports import FakeTool
from tests.support.files import PDF, PNG
from tests.support.office import Office
from tests.support.pages import shows, text
from tests.support.seeds import Cast

HTML = b"<!doctype html><script>alert(1)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'


def returned(office: Office, value: Any) -> UUID:
    """Start a run whose first tool returns the value."""
    tool = FakeTool(effect=EffectClass.IDEMPOTENT, body=lambda request: ToolResult(value=value))
    office.effects.tools["create_account"] = tool
    return office.start()


def address_of(run: UUID) -> str:
    return f"/contents/{BlobReference.objects.get(run=run).blob_id}/file/"


def written(media_type: str, data: bytes) -> dict[str, str]:
    return {"media_type": media_type, "base64": b64encode(data).decode()}


def test_a_returned_picture_is_shown_on_the_request_and_on_the_run(
    bea: Client, office: Office
) -> None:
    run = returned(office, file_value("image/png", PNG))
    address = address_of(run)
    picture = f'<img class="file" src="{address}" alt="Picture (png, 1 kB)"'
    shows(bea, office.request(run), picture, hides=["iVBORw0KGgo"])
    shows(bea, f"/runs/{run}/?tab=transcript", picture, hides=["iVBORw0KGgo"])
    answer = bea.get(address)
    assert answer.content == PNG
    sent = ("Content-Type", "X-Content-Type-Options", "Content-Security-Policy", "Cache-Control")
    assert [answer[name] for name in sent] == [
        "image/png",
        "nosniff",
        "default-src 'none'; sandbox",
        "no-store",
    ]
    assert answer["Content-Disposition"].startswith('inline; filename="')


def test_a_pdf_is_a_download(bea: Client, office: Office) -> None:
    run = returned(office, file_value("application/pdf", PDF))
    shows(bea, office.request(run), f'href="{address_of(run)}" download', hides=["<img"])
    answer = bea.get(address_of(run))
    assert answer.content == PDF
    assert answer["Content-Disposition"].startswith("attachment; ")


@pytest.mark.parametrize(
    "value",
    [
        written("image/png", HTML),
        written("image/png", SVG),
        written("application/pdf", HTML),
        written("image/jpeg", PNG),
        {"media_type": "image/png", "base64": "no base64"},
    ],
)
def test_bytes_of_another_type_are_not_sent(bea: Client, office: Office, value: Any) -> None:
    assert bea.get(address_of(returned(office, value))).status_code == 404


def test_a_file_above_the_limit_is_none() -> None:
    assert file_of(written("image/png", PNG.ljust(MAX_FILE))) is not None
    assert file_of(written("image/png", PNG.ljust(MAX_FILE + 1))) is None
    with pytest.raises(ValueError, match="at most 3145728 bytes"):
        file_value("image/png", PNG.ljust(MAX_FILE + 1))


@pytest.mark.parametrize(
    "value",
    [
        written("text/html", HTML),
        written("image/svg+xml", SVG),
        {**written("image/png", PNG), "onerror": "alert(1)"},
        {"media_type": "image/png", "base64": 7},
        {"media_type": ["image/png"], "base64": ""},
    ],
)
def test_what_is_no_file_is_shown_as_it_is(bea: Client, office: Office, value: Any) -> None:
    run = returned(office, value)
    assert not BlobReference.objects.filter(run=run).exists()
    shows(bea, f"/runs/{run}/?tab=transcript", "media_type", hides=['class="file'])


def test_a_file_of_a_run_that_may_not_be_read_is_not_found(
    ada: Client, cyril: Client, client: Client, office: Office
) -> None:
    address = address_of(returned(office, file_value("image/png", PNG)))
    assert [reader.get(address).status_code for reader in (ada, cyril, client)] == [200, 404, 302]
    assert ada.get(address.replace("sha256:", "sha256:0")).status_code == 404
    assert ada.get("/contents/sha256:x/file/").status_code == 404


def test_a_large_result_that_is_no_file_has_no_picture(ada: Client, office: Office) -> None:
    run = returned(office, "x" * 70_000)
    assert ada.get(address_of(run)).status_code == 404
    shows(ada, run, hides=['class="file'])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (file_value("image/png", PNG), 'src="data:image/png;base64,iVBORw0KGgo'),
        (file_value("application/pdf", PDF), 'href="data:application/pdf;base64,'),
        (written("image/png", HTML), "media_type"),
    ],
)
def test_a_file_that_a_tool_takes_is_shown(bea: Client, cast: Cast, value: Any, words: str) -> None:
    approval = seeds.pending(args={"picture": value})
    page = text(bea, approval)
    card = page.partition('id="what"')[2].partition('class="written"')[0]
    assert words in card
    assert bool(re.search('class="file', card)) == (words != "media_type")
    assert "alert(1)" not in page
