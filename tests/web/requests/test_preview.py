"""What the worker found out about a call before it asked stands on the page of the request."""

from typing import Any

from django.test import Client

from tests.support import seeds
from tests.support.pages import shows
from tests.support.seeds import Cast


def asked(preview: dict[str, Any]) -> Any:
    return seeds.pending(preview=preview)


def test_a_failed_judgement_stands_on_the_page(bea: Client, cast: Cast) -> None:
    request = asked({"unjudged": "The risk condition of pay failed: KeyError: '<i>9'"})
    shows(bea, request, "Counted as high risk", "KeyError: &#x27;&lt;i&gt;9&#x27;", hides=["<i>9"])
    shows(bea, asked({}), hides=["Counted as high risk"])
