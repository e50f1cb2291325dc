"""The second step of a high risk on the page, and its field in the API."""

from django.test import Client

from approvals.models import Approval
from tests.support.api_client import Caller
from tests.support.office import reseal
from tests.support.pages import has, send, shows, text_of


def test_a_token_cannot_leave_the_name_out(bea_api: Caller, asked: Approval) -> None:
    reseal([asked], risk="high")
    path, body = f"/approvals/{asked.id}", {"verdict": "approve", "digest": asked.approval_digest}
    refused = bea_api.post(f"{path}/decision", body)
    assert (refused.status_code, refused.json()["field"]) == (422, "confirm")
    confirm = bea_api.get(path).json()["confirm"]
    assert bea_api.post(f"{path}/decision", {**body, "confirm": confirm}).status_code == 200


def test_the_page_asks_for_the_name_and_keeps_the_comment(bea: Client, asked: Approval) -> None:
    reseal([asked], risk="high")
    shows(bea, asked, "Approve…", hides=['name="confirm"'])
    form = {"digest": asked.approval_digest, "reason": "Her lead agreed."}
    step = text_of(bea.post(f"/a/{asked.id}/approve/", form))
    has(step, "Type <b", "Yes, approve: <bdi>newhire</bdi>", "Her lead agreed.", "data-refused")
    wrong = text_of(send(bea, asked, "approve", confirm="<b>", reason="Her lead agreed."), 422)
    has(wrong, "that is not <bdi>newhire</bdi>", 'value="&lt;b&gt;"', "Her lead agreed.")
    again = text_of(send(bea, asked, "approve", reason="x" * 10_000), 422)
    has(again, 'name="confirm"', "Not approved: the reason")
    send(bea, asked, "approve", confirm="", confirmed="newhire", reason="Her lead agreed.")
    shows(bea, asked, "Approved by", "Her lead agreed.")
