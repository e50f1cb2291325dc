"""A person changes a value in a fork: on the page, by the API, and every mark and refusal of it."""

import json
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from agents.models import AgentVersion, PublishedAgent
from agents.sdk.spec import EACH
from approvals.models import Approval, AuditEntry
from runtime.control.interventions import send_message
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.json_values import hash_value
from runtime.keyring import sealing
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.reads import fork_preview
from tests.support.api_client import Caller, field_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import SCHEMA, Office
from tests.support.pages import has, send, shows, text_of
from tests.support.seeds import TOOL, object_of, published

ARGUMENTS = {"kind": "arguments", "frame": "0.c1.0", "call": "c2.0"}
RESULT = {"kind": "result", "frame": "0.c1.0", "call": "c1.0"}
LOWER = {"username": "newhire", "security_level": 2}
CALL = {"tool": "set_privileges", "arguments": LOWER}
SECRET = {"tool": "dial", "arguments": {"hint": "1234"}}
MADE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@pytest.fixture
def run(office: Office) -> UUID:
    """A run at the gate of set_privileges, whose tools a worker has published."""
    plain = {**TOOL, "secret_args": [], "secret_result": False}
    made = {**plain, "name": "create_account", "result_schema": MADE}
    published(
        "account_agent", tools=[{**plain, "schema": SCHEMA}, made], subagents=[], input_schema={}
    )
    return office.start()


def gated(run: UUID) -> int:
    return int(Run.objects.get(id=run).position)


def returned(run: UUID) -> int:
    """The entry after which the result of create_account is that of the last turn."""
    views = (fork_preview.preview(run, place) for place in range(1, gated(run) + 1))
    return next(
        one.position for one in views if one and "result" in {c.change.kind for c in one.changes}
    )


def form(of: dict[str, str], value: Any) -> dict[str, str]:
    name = f"{of['kind']}-{of['frame']}-{of['call']}-0"
    return {**of, "field": name, "value": value if isinstance(value, str) else json.dumps(value)}


def test_changed_arguments_are_marked_and_asked_again_and_nothing_is_repeated(
    ada: Client, bea: Client, office: Office, run: UUID
) -> None:
    place = f"/runs/{run}/fork/{gated(run)}/"
    shows(ada, place, "Arguments of <bdi>Set privileges", "&quot;security_level&quot;: 3")
    shows(bea, place, hides=["Fork with this change"])
    assert bea.post(place, form(ARGUMENTS, LOWER)).status_code == 403
    new = UUID(ada.post(place, form(ARGUMENTS, LOWER))["Location"].split("/")[2])
    office.advance(new)
    approval = office.request(new)
    assert json.loads(approval.args) == LOWER
    shows(bea, approval, "<bdi>ada</bdi> gave these arguments in a fork")
    shows(ada, approval, "You may read this, but not decide it.")
    assert send(ada, approval, "approve").status_code == 403
    assert office.approve(new).status == "completed"
    calls = [(call.tool, call.args) for call in office.effects.calls if call.run == new]
    assert calls[0] == ("set_privileges", LOWER)
    assert "create_account" not in dict(calls)
    results = [m["results"] for m in office.effects.models[-2].messages if m["role"] == "results"]
    told = [one for group in results for one in group if "edited_by" in one]
    assert [one["edited_by"] for one in told] in (["ada"], [])
    shows(ada, new, "<bdi>ada</bdi> changed the arguments of set_privileges")
    shows(ada, f"/runs/{new}/?tab=transcript", "Changed the arguments of set_privileges in this")
    shows(ada, f"/runs/{new}/?step=0.c1.0/c2.0", "changed by <bdi>ada", "proposed by the model")
    changed = [one.detail for one in AuditEntry.objects.filter(run_id__in=(run, new))]
    assert sum("arguments 0.c1.0 c2.0" in json.dumps(one) for one in changed) == 2
    assert json.loads(office.request(run).args)["security_level"] == 3


def test_a_changed_result_goes_to_the_model_as_a_person_s(
    ada: Client, ada_api: Caller, office: Office, run: UUID
) -> None:
    change = {**RESULT, "value": {"id": 9}}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": returned(run), "change": change})
    assert answer.status_code == 201
    new = UUID(answer.json()["id"])
    office.advance(new)
    (result,) = office.effects.models[-1].messages[-1]["results"]
    assert (result["content"], result["changed_by"]) == ({"id": 9}, "ada")
    assert not [call for call in office.effects.calls if call.run == new]
    shows(ada, f"/runs/{new}/?tab=transcript", "given by <bdi>ada</bdi>")
    shows(ada, f"/runs/{new}/?step=0.c1.0/c1.0", "changed in the fork by <bdi>ada")


def test_a_changed_message_is_from_its_editor(
    admin: Client, admin_api: Caller, office: Office, run: UUID
) -> None:
    send_message(run=run, actor=Actor(person="ada"), text="use level 4")
    office.advance(run)
    same = {"kind": "message", "number": 1, "value": "use level 4"}
    unchanged = admin_api.post(f"/runs/{run}/fork", {"position": gated(run), "change": same})
    assert field_of(unchanged) == (422, "change.value")
    sent = {"kind": "message", "number": "1", "field": "message-1", "value": "use level 1"}
    new = UUID(admin.post(f"/runs/{run}/fork/{gated(run)}/", sent)["Location"].split("/")[2])
    office.advance(new)
    assert set(Approval.objects.get(run=new).origin) == {"ada", "admin"}
    office.approve(new)
    heard = [m for m in office.effects.models[-1].messages if m["role"] == "message"]
    assert heard == [{"role": "message", "by": "admin", "content": "use level 1"}]


def asking(run: UUID) -> int:
    """The entry after which the model of the account agent is called for the second time."""
    views = (fork_preview.preview(run, place) for place in range(1, gated(run) + 1))
    kinds = {one.position: {c.change.kind for c in one.changes} for one in views if one}
    return next(place for place, found in kinds.items() if {"reply", "result"} <= found)


def opened(run: UUID) -> int:
    """The entry after which the model of the account agent is called for the first time."""
    last = fork_preview.find_last_quiescent(run)
    views = (fork_preview.preview(run, place) for place in range(1, last + 1))
    frames = {one.position: {c.change.frame for c in one.changes} for one in views if one}
    return next(place for place, found in frames.items() if "0.c1.0" in found)


def test_a_given_reply_takes_the_place_of_the_model_s_and_its_calls_are_asked(
    ada: Client, bea: Client, office: Office, run: UUID
) -> None:
    place = f"/runs/{run}/fork/{asking(run)}/"
    shows(ada, place, "Next reply of the model", "&quot;tool&quot;: &quot;set_privileges&quot;")
    calls = [{"tool": "set_privileges", "arguments": LOWER}]
    reply = {
        "kind": "reply",
        "frame": "0.c1.0",
        "field": "reply-0.c1.0--0",
        "value": "Level 2 it is.",
    }
    assert bea.post(place, {**reply, "calls": json.dumps(calls)}).status_code == 403
    answer = ada.post(place, {**reply, "calls": json.dumps(calls)})
    new = UUID(answer["Location"].split("/")[2])
    office.advance(new)
    asked = [one for one in office.effects.models if one.run == new]
    assert [(one.frame, one.fork_reply and one.fork_reply.by) for one in asked] == [
        ("0.c1.0", "ada")
    ]
    approval = office.request(new)
    assert json.loads(approval.args) == LOWER
    shows(bea, approval, "<bdi>ada</bdi> gave these arguments in a fork")
    assert send(ada, approval, "approve").status_code == 403
    assert office.approve(new).status == "completed"
    calls_made = [(call.tool, call.args) for call in office.effects.calls if call.run == new]
    assert calls_made[0] == ("set_privileges", LOWER)
    shows(ada, new, "<bdi>ada</bdi> changed the next reply of the model", "reply given by")
    shows(ada, f"/runs/{new}/?tab=transcript", "given by <bdi>ada</bdi>", "Level 2 it is.")
    shows(
        ada,
        f"/runs/{new}/?step=0.c1.0/c2.0",
        "given in the fork by <bdi>ada",
        hides=["proposed by the model"],
    )
    before = f"fork from entry {asking(run)}"
    assert any(
        before in text_of(ada.get(f"/runs/{run}/fork/{n}/")) for n in range(1, gated(run) + 1)
    )
    audit = [one.detail for one in AuditEntry.objects.filter(run_id__in=(run, new))]
    assert sum("reply 0.c1.0" in json.dumps(one) for one in audit) == 2


def test_a_fork_starts_before_or_after_a_reply_that_joined_an_entry(
    ada: Client, ada_api: Caller, office: Office, run: UUID
) -> None:
    office.effects.code |= {"hr_onboarding", "account_agent"}
    run = office.start()
    last = gated(
        run
    )  # 2: both agents replied, and an account is created; 3: it was, and a reply asks

    def fork(position: int, **change: Any) -> tuple[UUID, list[str]]:
        """Fork the run, and return the calls of the fork up to its end or its gate."""
        body = {"position": position, **({"change": change} if change else {})}
        new = UUID(ada_api.post(f"/runs/{run}/fork", body).json()["id"])
        office.advance(new)
        return new, [call.tool for call in office.effects.calls if call.run == new]

    page = f"/runs/{run}/fork/"
    shows(ada, f"{page}{last - 1}/", "before the reply in entry", "Create account")
    shows(ada, f"{page}{last}/", "after entry", "Reply of the model in this entry", "Arguments of")
    assert fork(last - 1)[1] == ["create_account"]
    new, calls = fork(last)
    assert (calls, office.request(new).tool) == ([], "set_privileges")
    new, calls = fork(last, **RESULT, value={"id": 9})
    (result,) = office.effects.models[-1].messages[-1]["results"]
    assert (calls, result["changed_by"], office.request(new).tool) == ([], "ada", "set_privileges")
    new, calls = fork(last, kind="reply", frame="0.c1.0", value={"calls": [CALL]})
    assert (calls, json.loads(office.request(new).args)) == ([], LOWER)


def test_a_reviewer_changes_a_call_of_a_given_reply(
    ada_api: Caller, ada: Client, bea: Client, office: Office, run: UUID
) -> None:
    change = {"kind": "reply", "frame": "0.c1.0", "value": {"calls": [CALL]}}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": asking(run), "change": change})
    new = UUID(answer.json()["id"])
    office.advance(new)
    fewer = json.dumps({**LOWER, "security_level": 1})
    send(bea, office.request(new), "edit/approve", arguments=fewer, reason="Less.")
    office.advance(new)
    step = f"/runs/{new}/?step=0.c1.0/c2.0"
    shows(ada, step, "changed by <bdi>bea</bdi>", "proposed by <bdi>ada</bdi> in the fork")


def defined(**definition: Any) -> None:
    """Publish another version of the account agent."""
    facts = {"name": "account_agent", **definition}
    number = hash_value(facts)
    AgentVersion.objects.create(fingerprint=number, agent="account_agent", facts=json.dumps(facts))
    PublishedAgent.objects.filter(name="account_agent").update(fingerprint=number)


def test_no_reply_is_given_where_code_decides(ada_api: Caller, ada: Client, run: UUID) -> None:
    position = asking(run)
    defined(model=EACH)
    change = {"kind": "reply", "frame": "0.c1.0", "value": {"text": "Done."}}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": position, "change": change})
    assert field_of(answer) == (422, "change.value")
    shows(ada, f"/runs/{run}/fork/{position}/", "Result of", hides=["Next reply of the model"])


@pytest.mark.parametrize(
    ("text", "field"),
    [("Level 2.", ".text"), ('{"level": "two"}', ".text.level"), ('{"level": 2}', None)],
)
def test_a_typed_answer_fits_its_schema(
    ada_api: Caller, run: UUID, text: str, field: str | None
) -> None:
    defined(output=object_of(level={"type": "integer"}))
    change = {"kind": "reply", "frame": "0.c1.0", "value": {"text": text}}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": asking(run), "change": change})
    if field is None:
        assert answer.status_code == 201
    else:
        assert field_of(answer) == (422, f"change.value{field}")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("yes", ""),
        ({}, ""),
        ({"text": " \n"}, ""),
        ({"text": 1}, ".text"),
        ({"text": "\u0000"}, ".text"),
        ({"text": "x" * 65_536}, ""),
        ({"text": "••••"}, ".text"),
        ({"text": "Hello.", "by": "bea"}, ""),
        ({"calls": CALL}, ".calls"),
        ({"calls": [CALL] * 129}, ".calls"),
        ({"calls": ["set_privileges"]}, ".calls.0"),
        ({"calls": [{**CALL, "by": "bea"}]}, ".calls.0"),
        ({"calls": [{**CALL, "tool": ""}]}, ".calls.0.tool"),
        ({"calls": [CALL, {**CALL, "tool": "drop_all"}]}, ".calls.1.tool"),
        ({"calls": [{**CALL, "arguments": []}]}, ".calls.0.arguments"),
        (
            {"calls": [{**CALL, "arguments": {**LOWER, "security_level": 9}}]},
            ".calls.0.arguments.security_level",
        ),
        ({"calls": [{**CALL, "arguments": {**LOWER, "more": 1}}]}, ".calls.0.arguments.more"),
        (
            {"calls": [{**CALL, "arguments": {**LOWER, "username": "••••"}}]},
            ".calls.0.arguments.username",
        ),
        (
            {"calls": [{**CALL, "arguments": {**LOWER, "username": {"$secret": "v1"}}}]},
            ".calls.0.arguments.username",
        ),
        ({"calls": [{**CALL, "arguments": {**LOWER, "security_level": 3}}]}, ""),
        ({"calls": [SECRET]}, ".calls.0.arguments.hint"),
        (
            {"calls": [{**SECRET, "arguments": {"note": {"$secret": "v1"}}}]},
            ".calls.0.arguments.note",
        ),
        ({"calls": [{**SECRET, "arguments": {}}]}, ".calls.0.arguments.pin"),
        (
            {"text": "I set it.", "calls": [{**CALL, "arguments": {**LOWER, "security_level": 3}}]},
            None,
        ),
    ],
)
def test_a_reply_that_does_not_fit_names_its_field(
    ada_api: Caller, office: Office, run: UUID, value: Any, field: str | None
) -> None:
    row = PublishedAgent.objects.get(name="account_agent")
    secret = {"type": "string", "writeOnly": True}
    pin = {**object_of(pin=secret), "properties": {"pin": secret, "hint": secret, "note": {}}}
    row.tools.append({**row.tools[0], "name": "dial", "schema": pin})
    row.save()
    change = {"kind": "reply", "frame": "0.c1.0", "value": value}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": asking(run), "change": change})
    if field is not None:
        assert field_of(answer) == (422, f"change.value{field}")
    assert Run.objects.count() == (2 if field is None else 1)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({**ARGUMENTS, "value": {**LOWER, "security_level": 9}}, "change.value.security_level"),
        ({**ARGUMENTS, "value": {"username": "newhire"}}, "change.value.security_level"),
        ({**ARGUMENTS, "value": {**LOWER, "more": 1}}, "change.value.more"),
        ({**ARGUMENTS, "value": []}, "change.value"),
        ({**ARGUMENTS, "value": {**LOWER, "security_level": 3}}, "change.value"),
        ({**ARGUMENTS, "call": "c1.0", "value": LOWER}, "change"),
        ({**RESULT, "value": 1}, "change"),
        ({"kind": "message", "number": 1, "value": "x"}, "change"),
        ({"kind": "state", "value": 1}, "change"),
        (ARGUMENTS, "change"),
        ({**ARGUMENTS, "value": LOWER, "by": "bea"}, "change"),
        ("x", "change"),
    ],
)
def test_what_does_not_fit_names_its_field(
    ada_api: Caller, run: UUID, change: Any, field: str
) -> None:
    answer = ada_api.post(f"/runs/{run}/fork", {"position": gated(run), "change": change})
    assert field_of(answer) == (422, field)
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"id": "9"}, "change.value.id"),
        ({}, "change.value.id"),
        ({"id": 9, "x": "y" * 65_536}, "change.value"),
        ({"id": 9, "x": {"$secret": "v1"}}, "change.value"),
    ],
)
def test_a_result_fits_its_schema(ada_api: Caller, run: UUID, value: Any, why: str) -> None:
    body = {"position": returned(run), "change": {**RESULT, "value": value}}
    assert field_of(ada_api.post(f"/runs/{run}/fork", body)) == (422, why)


def test_a_placeholder_stands_for_the_secret_of_its_place(ada_api: Caller, office: Office) -> None:
    secret = sealing.seal("pw", b"made")
    made = {"id": 1, "keys": [secret, "open"], "note": f"use {json.dumps(secret)}"}
    office.effects.tools["create_account"] = FakeTool(body=lambda _: ToolResult(value=made))
    run = office.start()
    body: dict[str, Any] = {"position": returned(run), "change": {**RESULT}}

    def sent(**value: Any) -> Any:
        shown = {"id": 1, "keys": ["••••", "open"], "note": 'use "••••"'}
        body["change"]["value"] = {**shown, **value}
        return ada_api.post(f"/runs/{run}/fork", body)

    assert field_of(sent()) == (422, "change.value"), "it is unchanged"
    assert field_of(sent(keys=["open", "••••"])) == (422, "change.value.keys.1")
    assert field_of(sent(note="do not use ••••")) == (422, "change.value.note")
    new = UUID(sent(id=True).json()["id"])
    office.advance(new)
    (result,) = office.effects.models[-1].messages[-1]["results"]
    assert result["content"] == {**made, "id": True}


def test_a_placeholder_of_arguments_that_were_sealed_as_one_is_refused(
    ada_api: Caller, office: Office
) -> None:
    sealed = sealing.seal({"id": 1}, sealing.encode_location("set_privileges", "args"))
    office.effects.agents["account_agent"] = turns(ask(("set_privileges", sealed)), say("Done."))
    published("account_agent", tools=[{**TOOL, "schema": SCHEMA}], subagents=[], input_schema={})
    run = office.start()
    call = {"tool": "set_privileges", "arguments": {"arguments": "••••"}}
    change = {"kind": "reply", "frame": "0.c1.0", "value": {"calls": [call]}}
    answer = ada_api.post(f"/runs/{run}/fork", {"position": opened(run), "change": change})
    assert field_of(answer) == (422, "change.value.calls.0.arguments.arguments")


def test_arguments_of_a_delegation_are_not_offered(office: Office) -> None:
    run = office.start(budget=BudgetLimits(depth=1))  # its call waits at the gate of the limit
    view = fork_preview.preview(run, gated(run))
    assert view is not None
    assert (view.possible, view.changes) == (True, ())


def test_a_refused_form_keeps_its_text(ada: Client, run: UUID) -> None:
    place = f"/runs/{run}/fork/{gated(run)}/"
    for value, why in (
        ('{"username": "<i>', "is not JSON"),
        ({**LOWER, "security_level": 99}, "must be at most 5"),
    ):
        page = text_of(ada.post(place, form(ARGUMENTS, value)), 422)
        has(page, why, 'aria-invalid="true"', '<details class="fold" open', hides=["<i>"])
        has(page, "&quot;&lt;i&gt;" if "JSON" in why else "99")
    assert Run.objects.count() == 1
