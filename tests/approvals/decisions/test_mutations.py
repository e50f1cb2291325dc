"""No change to a request between the page, the decision and the start of the call is carried out.

FAULTS_R7 says how many changes there are. Each is made as a writer to the database could make it, then undone.
"""

import copy
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import pytest
from django.db import transaction

from approvals.errors import DigestMismatch, TamperedWith
from approvals.models import Approval
from runtime.core.values.enums import Decision, Risk
from runtime.core.values.json_values import hash_value
from runtime.errors import Tampered
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.store.tables import signals
from tests.support import seeds
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

CHANGES = count("R7", short=400, long=100_000)
SEED = 20
LESS = {"username": "new.hire", "security_level": 1}
PREVIEW = {"shown": {"summary": "Replaces one role", "counts": {"accounts": 1}}}
RULE = {"rule": "Easy", "version": "1", "stages": [{"quorum": 1}]}
RESULT = {"type": "object", "properties": {"id": {"type": "string"}}}
_OTHERS: tuple[Any, ...] = (
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
)

# Columns that hold JSON, and those that hold text. The five parts of the promise, and what surrounds them.
_JSON = ("args", "preview", "path")
_TEXT = (
    "approval_digest",
    "action_digest",
    "schema",
    "result_schema",
    "policy_version",
    "sentence",
)
_OTHER = ("rule", "risk", "nonce", "seal", "effect")
COLUMNS = (*_JSON, *_TEXT, *_OTHER)
Attempt = Callable[[random.Random], str]


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
    other = list[Any](_OTHERS)
    if isinstance(value, str) and value:
        other.append(_text(value, chance))
    return chance.choice([one for one in other if hash_value(one) != hash_value(value)])


def _text(value: str, chance: random.Random) -> str:
    """The text with one character changed, added or left out."""
    at = chance.randrange(len(value))
    other = chr(ord(value[at]) ^ 1)
    return value[:at] + chance.choice((other, "", other + value[at])) + value[at + 1 :]


class Writer:
    """Changes the stored rows of requests that were opened and decided before."""

    def __init__(self, bea: Actor) -> None:
        given: dict[str, Any] = {"preview": PREVIEW, "result_schema": RESULT}
        self._bea = bea
        self._shown, self._approved, self._edited = (seeds.pending(**given) for _ in range(3))
        seeds.decide(self._approved, bea)
        preview = seeds.preview(self._edited, bea, LESS, {"summary": "Lowers the level"})
        seeds.decide(self._edited, bea, "edit", "Enough.", preview=preview)
        for approval in (self._approved, self._edited):
            approval.refresh_from_db()
        self._body = json.loads(Signal.objects.get(run=self._edited.run_id).body)
        self.attempts: tuple[Attempt, ...] = (
            *(self._before_the_decision(column) for column in COLUMNS),
            *(self._before_the_call(column) for column in COLUMNS),
            self._another_digest,
            self._another_action,
            self._statement,
            self._edit_on_the_way,
            self._edit_before_the_call,
        )

    def _before_the_decision(self, column: str) -> Attempt:
        def attempt(chance: random.Random) -> str:
            change = _changed(self._shown, column, chance)
            try:
                seeds.decide(self._shown, self._bea, "approve", confirm="new.hire")
            except (TamperedWith, DigestMismatch):
                return ""
            return f"approved with {column} = {change!r}"

        return attempt

    def _before_the_call(self, column: str) -> Attempt:
        def attempt(chance: random.Random) -> str:
            change = _changed(self._approved, column, chance)
            return _started(self._approved, f"{column} = {change!r}")

        return attempt

    def _another_digest(self, chance: random.Random) -> str:
        digest = _text(self._shown.approval_digest, chance)
        try:
            seeds.decide(self._shown, self._bea, digest=digest)
        except DigestMismatch:
            return ""
        return f"approved as {digest}"

    def _another_action(self, chance: random.Random) -> str:
        """A worker that holds other arguments than the approved ones."""
        digest = _text(self._approved.action_digest, chance)
        return _started(self._approved, "another action", action_digest=digest)

    def _statement(self, chance: random.Random) -> str:
        column = chance.choice(["statement", "signature"])
        value = getattr(self._approved, column)
        change = (
            json.dumps(mutated(json.loads(value), chance))
            if column == "statement"
            else _text(value, chance)
        )
        Approval.objects.filter(id=self._approved.id).update(**{column: change})
        return _started(self._approved, f"{column} = {change!r}")

    def _edit_on_the_way(self, chance: random.Random) -> str:
        change = json.dumps(mutated(self._body, chance))
        try:
            seeds.verify_decision(self._edited, _decided(change))
        except (NotConfirmed, Tampered):
            return ""
        return f"heard {change}"

    def _edit_before_the_call(self, chance: random.Random) -> str:
        column = chance.choice(["args", "edited", "edited_preview"])
        change = json.dumps(mutated(json.loads(getattr(self._edited, column)), chance))
        Approval.objects.filter(id=self._edited.id).update(**{column: change})
        digest = self._body["edit"]["digest"]
        return _started(self._edited, f"{column} = {change}", action_digest=digest)

    def check(self) -> None:
        """See that unchanged rows are carried out, so that every refusal is due to its change."""
        seeds.verify_approval(self._approved)
        seeds.verify_decision(self._edited, _decided(json.dumps(self._body)))
        seeds.verify_approval(self._edited, action_digest=self._body["edit"]["digest"])
        assert seeds.decide(self._shown, self._bea).status == "approved"


def test_no_change_between_show_approve_and_run_is_carried_out(bea: Actor) -> None:
    chance, began = random.Random(SEED), time.monotonic()
    writer, tried = Writer(bea), Counter[str]()
    carried_out = list[str]()
    for attempt in islice(cycle(writer.attempts), CHANGES):
        with transaction.atomic():
            carried_out += filter(None, [attempt(chance)])
            transaction.set_rollback(True)
        tried[attempt.__qualname__] += 1
    seconds = time.monotonic() - began
    say(f"FIGURES changes: {tried.total()} tried, {len(carried_out)} executed, {seconds:.0f} s")
    assert carried_out == []
    assert tried.total() == CHANGES
    writer.check()


def _changed(approval: Approval, column: str, chance: random.Random) -> Any:
    """Store another value in this column, and return it."""
    value: Any = getattr(approval, column)
    change: Any
    match column:
        case "path":
            change = [*value[:-1], _text(value[-1], chance)]
        case "rule":
            change = json.dumps(mutated(RULE, chance))
        case "risk":
            change = chance.choice([risk for risk in Risk if risk != value])
        case _ if column in _JSON:
            change = json.dumps(mutated(json.loads(value), chance))
        case _:
            change = _text(value, chance)
    Approval.objects.filter(id=approval.id).update(**{column: change})
    return change


def _started(approval: Approval, change: str, **given: str) -> str:
    """Say that a worker would start the call, empty if it refuses."""
    try:
        seeds.verify_approval(approval, **given)
    except NotConfirmed:
        return ""
    return f"started with {change}"


def _decided(body: str) -> Decision:
    """Read the decision of a signal as a worker does. One for another gate finds no open gate in the run."""
    signal = signals._decode(1, signals.GATE_DECIDED, body)
    assert isinstance(signal, signals.GateDecidedSignal)
    is_ours = Signal.objects.filter(body__contains=str(signal.gate)).exists()
    return signal.decision if is_ours else replace(signal.decision, by="")
