"""The filter of the inbox: its results, and that input is only ever text."""

from uuid import UUID

import pytest

from approvals.models import Request
from approvals.queries import filters
from runtime.core.enums import Risk
from tests.support import seeds

pytestmark = pytest.mark.django_db


@pytest.fixture
def made() -> dict[str, UUID]:
    run = seeds.run()
    high, low = seeds.opened(
        seeds.snapshot(run, risk=Risk.HIGH, requester="ada"),
        seeds.snapshot(run, risk=Risk.LOW, requester="cyril"),
    )
    Request.objects.filter(pk=low.id).update(
        sentence="Send 100% of the_mail to c:\\new", tool="send_mail", path=["hr_mail", "send_mail"]
    )
    return {"high": high.id, "low": low.id}


@pytest.mark.parametrize(
    ("q", "names"),
    [
        ("", {"high", "low"}),
        ("PRIVILEGES level", {"high"}),
        ('"level 3"', {"high"}),
        ('"3 level"', set()),
        ("cyril", {"low"}),
        ("account_agent", {"high"}),
        ("risk:high", {"high"}),
        ("RISK:low mail", {"low"}),
        ("agent:hr", {"high", "low"}),
        ("agent:send", set()),
        ("tool:send", {"low"}),
        ("by:ada", {"high"}),
        ("100%", {"low"}),
        ("1%", set()),
        ("the_mail", {"low"}),
        ("c:\\new", {"low"}),
        ("';--", set()),
        ("agent:%", set()),
    ],
)
def test_a_filter_finds(made: dict[str, UUID], q: str, names: set[str]) -> None:
    found = Request.objects.filter(filters.condition(q)).values_list("pk", flat=True)
    assert set(found) == {made[name] for name in names}
