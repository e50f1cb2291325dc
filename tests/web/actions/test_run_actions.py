"""Rules of every action on a run, over the API: permissions, texts, and ended runs."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.limits import MAX_MESSAGE
from runtime.models import Run, Signal
from tests.support.api_client import Caller
from tests.support.office import Office

BODIES: dict[str, dict[str, Any]] = {
    "cancel": {"reason": "Not needed."},
    "pause": {"reason": "Wait for HR."},
    "resume": {},
    "messages": {"text": "Mind the gap."},
    "retry": {"reason": "The model is mended."},
}
TEXTS = {  # the field, whether it may be empty, and its longest text
    "cancel": ("reason", False, 2000),
    "pause": ("reason", True, 2000),
    "messages": ("text", False, MAX_MESSAGE),
    "retry": ("reason", False, 2000),
}


@pytest.fixture
def run(action: str, office: Office) -> UUID:
    """A run of Ada's on which the action is possible."""
    return office.failed() if action == "retry" else office.start()


@pytest.mark.parametrize("action", BODIES)
def test_an_action_needs_the_right_the_scope_and_the_run(
    action: str, run: UUID, ada_api: Caller, bea_api: Caller, cyril_api: Caller, narrow_api: Caller
) -> None:
    path, body = f"/runs/{run}/{action}", BODIES[action]
    before = (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count())
    for caller, status, code in (
        (bea_api, 403, "not_eligible"),
        (narrow_api, 403, "scope"),
        (cyril_api, 404, "not_found"),
    ):
        answer = caller.post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert ada_api.post(f"/runs/{uuid4()}/{action}", body).status_code == 404
    assert (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count()) == before


@pytest.mark.parametrize("action", TEXTS)
def test_a_text_is_clean_and_of_a_stated_length(
    action: str, run: UUID, ada_api: Caller, subtests: pytest.Subtests
) -> None:
    field, may_be_empty, longest = TEXTS[action]
    before = (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count())
    empty = [] if may_be_empty else [{}, {field: None}, {field: ""}, {field: "  \n"}]
    wrong = (7, ["no"], "x" * (longest + 1), "nul\x00", "\ud800")
    for body in (*empty, *({field: text} for text in wrong)):
        with subtests.test(repr(body)[:40]):
            answer = ada_api.post(f"/runs/{run}/{action}", body)
            assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert (Run.objects.get(id=run).status, Signal.objects.filter(run=run).count()) == before


@pytest.mark.parametrize("action", [action for action in BODIES if action != "retry"])
def test_a_run_that_has_ended_is_left_as_it_is(
    action: str, run: UUID, ada_api: Caller, office: Office
) -> None:
    office.approve(run)
    answer = ada_api.post(f"/runs/{run}/{action}", BODIES[action])
    assert (answer.status_code, answer.json()["code"]) == (409, "run_ended")
    assert answer.json()["status"] == "completed"
