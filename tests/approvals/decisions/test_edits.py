"""An approval with changes: its signature, its refusals, and that no change of it on the way counts."""

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from django.db import transaction

from approvals import audit
from approvals.decisions.undo import undo
from approvals.errors import TamperedWith
from approvals.models import AuditEntry, Request
from approvals.requests import verification
from runtime.core.digest import sha256_of
from runtime.core.enums import GateKind, Risk, Verdict
from runtime.errors import Forbidden, InvalidInput, Tampered
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.store.tables import signals
from tests.support import seeds

pytestmark = pytest.mark.django_db

LESS = {"username": "new.hire", "security_level": 1}
MUTATIONS = 300


def edited(actor: Actor, **given: Any) -> Request:
    request = seeds.pending(**given)
    seeds.decide(request, actor, "edit", "Enough.", arguments=LESS)
    request.refresh_from_db()
    return request


def test_the_changed_arguments_are_signed_sent_and_audited(bea: Actor) -> None:
    request = edited(bea)
    heard = seeds.heard(request)
    assert (request.status, heard.verdict, heard.by) == ("approved", Verdict.EDIT, "bea")
    assert heard.edit is not None
    assert (heard.edit.args, json.loads(request.edited or "")) == (LESS, LESS)
    seeds.verify_decision(request)
    seeds.verify_approval(request, action_digest=heard.edit.digest)
    with pytest.raises(NotConfirmed, match="the action to start differs"):
        seeds.verify_approval(request)  # of the proposed arguments
    detail = json.loads(AuditEntry.objects.get(run=request.run_id, act="approved").detail)
    assert (detail["verdict"], detail["edited"]) == ("edit", heard.edit.digest)
    assert audit.verify(request.run_id) == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "arguments"),
        ({"arguments": None}, "arguments"),
        ({"arguments": [1]}, "arguments"),
        ({"arguments": seeds.ARGS}, "arguments"),
        ({"arguments": {**LESS, "tool": "delete_account"}}, "arguments.tool"),
        ({"arguments": {**LESS, "security_level": "1"}}, "arguments.security_level"),
        ({"arguments": {"username": "new.hire"}}, "arguments.security_level"),
        ({"arguments": LESS, "verdict": "approve"}, "arguments"),
        ({"arguments": LESS, "verdict": "deny", "reason": "no"}, "arguments"),
        ({"arguments": LESS, "result": 1}, "result"),
        ({"arguments": LESS, "confirm": "another"}, "confirm"),
    ],
    ids=range(11),
)
def test_other_arguments_are_refused_by_name(bea: Actor, given: dict[str, Any], field: str) -> None:
    request = seeds.pending()
    with pytest.raises(InvalidInput) as refused:
        seeds.decide(request, bea, **{"verdict": "edit", **given})
    assert refused.value.field == field
    assert seeds.untouched(request)
    for kind in set(GateKind) - {GateKind.APPROVAL, GateKind.IN_DOUBT}:
        with pytest.raises(InvalidInput) as refused:
            seeds.decide(seeds.pending(kind=kind), bea, "edit", arguments=LESS)
        assert refused.value.field == "verdict"


def test_a_requester_cannot_edit(ada: Actor) -> None:
    request = seeds.pending()
    with pytest.raises(Forbidden) as refused:
        seeds.decide(request, ada, "edit", arguments=LESS)
    assert refused.value.code == "requester"
    assert seeds.untouched(request)


def test_an_edit_into_a_denied_call_is_refused(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of, args=LESS), seeds.snapshot(of, call="c2.1"))
    seeds.decide(first, bea, "deny", "not even that")
    with pytest.raises(InvalidInput, match="it stays denied"):
        seeds.decide(second, bea, "edit", arguments=LESS)
    seeds.decide(seeds.pending(), bea, "edit", arguments=LESS)  # in another run


def test_an_undone_edit_leaves_the_request_as_it_was(bea: Actor, settings: Any) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 60
    request = edited(bea, risk=Risk.LOW)
    undo(request=request.id, actor=bea)
    request.refresh_from_db()
    assert (request.status, request.edited, request.statement) == ("pending", None, None)
    assert verification.fault(request) is None
    assert not Signal.objects.exists()


def mutated(value: Any, chance: random.Random) -> Any:
    """The JSON value with one change somewhere in it."""
    value = copy.deepcopy(value)
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(sorted(value))
        match chance.randrange(4):
            case 0:
                del value[name]
            case 1:
                value[name + "_"] = value.pop(name)
            case _:
                value[name] = mutated(value[name], chance)
        return value
    other: list[Any] = [
        None,
        True,
        0,
        -1,
        5,
        1e9,
        "",
        "new.hire ",
        "admin",
        "edit",
        "approve",
        [],
        {"a": 1},
    ]
    if isinstance(value, str) and value:
        place = chance.randrange(len(value))
        other.append(value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :])
    return chance.choice([one for one in other if sha256_of(one) != sha256_of(value)])


def test_no_change_between_show_edit_and_run_is_carried_out(bea: Actor) -> None:
    chance = random.Random(20)
    shown, request = seeds.pending(), edited(bea)
    body = json.loads(Signal.objects.get(run=request.run_id).body)
    digest = body["edit"]["digest"]
    for number in range(MUTATIONS):
        with transaction.atomic():
            match number % 3:
                case 0:  # between the page and the decision
                    change = json.dumps(mutated(seeds.ARGS, chance))
                    Request.objects.filter(id=shown.id).update(args=change)
                    with pytest.raises(TamperedWith):
                        seeds.decide(shown, bea, "edit", arguments=LESS)
                case 1:  # between the decision and the worker
                    change = json.dumps(mutated(body, chance))
                    with pytest.raises((NotConfirmed, Tampered)):
                        seeds.verify_decision(request, _decided(change))
                case 2:  # between the worker and the call
                    column = chance.choice(["args", "edited"])
                    change = json.dumps(mutated(json.loads(getattr(request, column)), chance))
                    Request.objects.filter(id=request.id).update(**{column: change})
                    with pytest.raises(NotConfirmed):
                        seeds.verify_approval(request, action_digest=digest)
            transaction.set_rollback(True)
    seeds.verify_decision(request, _decided(json.dumps(body)))
    seeds.verify_approval(request, action_digest=digest)


def _decided(body: str) -> Any:
    """Read the decision of a signal as a worker does. One for another gate finds no open gate in the run."""
    signal = signals._decode(1, signals.GATE_DECIDED, body)
    assert isinstance(signal, signals.GateDecidedSignal)
    same = str(signal.gate) in Signal.objects.get().body
    return signal.decision if same else replace(signal.decision, by="")
