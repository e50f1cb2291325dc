"""Triggers start each event once, in order per key, for their owner, also if sweepers die; and the acts of people."""

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from approvals.models import Approval
from approvals.people import accounts
from approvals.rules.policy import Group
from runtime.control.external_events import deliver
from runtime.control.verification import verify
from runtime.core.values.limits import MAX_KEY
from runtime.errors import (
    EventConflict,
    InvalidInput,
    NoSuchTrigger,
    NotRetried,
    RequestError,
    TriggerEnded,
)
from runtime.models import Occurrence, ReceivedEvent, Run, Trigger, TriggerAct
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import occurrences, received_events
from runtime.store.tables.occurrences import WaitingEvent
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, events, firing, listing, trials, webhooks
from runtime.triggers.event_definition import MAX_DEBOUNCES, EventDefinition, plan_starts
from runtime.triggers.webhooks import receive
from tests.support import seeds
from tests.support.engine import ADA
from tests.support.engine import events as events_of
from tests.support.office import Office, refused
from tests.support.threads import together
from tests.triggers.events.conftest import DATA, HOOK, NOON, SAID, Desk, told

ADMIN = Actor(person="admin")


def test_an_event_starts_one_run_of_the_owner_on_the_mapped_input(desk: Desk) -> None:
    made = desk.make(thread="'team ' + data.team")
    other = desk.make(name="Others", event="left")
    assert desk.send() == 1
    assert desk.send(country="FR") == 1
    assert desk.send("e1") == 0  # the same event again
    desk.sweep()
    desk.sweep(5)
    assert told(made) == [("e1", "started", ""), ("e2", "skipped", events.FILTERED)]
    assert told(other) == []
    run = Run.objects.get()
    assert (run.agent, run.requester, run.status) == ("hr_onboarding", "ada", "queued")
    assert json.loads(run.input) == {"full_name": "New Hire", "level": 2}
    assert run.thread == "team a"
    assert str(run.business_key).startswith("Hires e1 (")
    assert (run.due_at is not None, verify(run.id).is_consistent) == (True, True)


def test_an_event_is_the_same_by_its_source_and_id(desk: Desk) -> None:
    made = desk.make()
    said: dict[str, Any] = {"id": "e1", "name": "hired", "data": DATA, "actor": HOOK}
    assert [deliver(**said, source=source).triggers for source in ("a", "b", "a", "")] == [
        1,
        1,
        0,
        1,
    ]
    with pytest.raises(EventConflict):
        deliver(**said, source="a", subject="another")
    desk.sweep()
    assert [state for _, state, _ in told(made)] == ["started"] * 3
    assert len(set(Run.objects.values_list("business_key", flat=True))) == 3


def test_two_sweepers_at_once_start_each_event_once(desk: Desk) -> None:
    made = [desk.make(name=f"no. {n}") for n in range(6)]
    for _ in range(4):
        desk.send()
    barrier = threading.Barrier(2)

    def sweep() -> None:
        barrier.wait()
        with pool.open_own() as own:
            firing.fire_events(own, threading.Event())

    together([sweep] * 2)
    assert {tuple(state for _, state, _ in told(one)) for one in made} == {("started",) * 4}
    assert Run.objects.count() == 24


def test_events_of_one_key_start_in_order_and_those_of_others_beside_them(desk: Desk) -> None:
    made = desk.make(at_once_per_key=1, at_once=2)
    for team in ("a", "a", "b", "c"):
        desk.send(team=team)
    desk.sweep()
    assert [state for _, state, _ in told(made)] == ["started", "waiting", "started", "waiting"]
    desk.end(key="a")
    desk.sweep(2)
    assert [state for _, state, _ in told(made)] == ["completed", "started", "started", "waiting"]
    desk.end()
    desk.sweep(2)
    assert told(made)[3][1] == "started"


def test_many_keys_that_are_full_hide_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STARTS", 1)
    made = desk.make(at_once_per_key=1)
    for team in [f"{n}" for n in range(11)] * 2 + ["z"]:
        desk.send(team=team)
    desk.sweep()
    states = [state for _, state, _ in told(made)]
    assert states == ["started"] * 11 + ["waiting"] * 11 + ["started"]
    desk.end(key="3")
    desk.sweep(2)
    assert Run.objects.count() == 13


def test_a_debounce_starts_the_last_event_of_a_key(desk: Desk) -> None:
    made = desk.make(debounce=10)
    for level in (1, 2):
        desk.send(level=level)
        desk.sweep(6)
    assert Run.objects.count() == 0
    desk.sweep(5)
    why = "a later event of its key came within 10 s"
    assert told(made) == [("e1", "skipped", why), ("e2", "started", "")]
    assert json.loads(Run.objects.get().input)["level"] == 2


def test_a_debounce_skips_no_event_of_another_key(desk: Desk) -> None:
    made = desk.make(debounce=10, at_once_per_key=1)
    desk.send(team="b")
    desk.sweep(10)
    for team in ("b", "a"):
        desk.send(team=team)
    desk.sweep(10)
    assert [state for _, state, _ in told(made)] == ["started", "waiting", "started"]


def test_a_rate_lets_the_rest_wait(desk: Desk) -> None:
    made = desk.make(rate=2, rate_seconds=60)
    for _ in range(3):
        desk.send()
    desk.sweep()
    desk.sweep(59)
    assert [state for _, state, _ in told(made)] == ["started", "started", "waiting"]
    desk.sweep(1)
    assert told(made)[2][1] == "started"


def test_a_business_key_starts_one_run(desk: Desk) -> None:
    made = desk.make(business_key="'hire ' + data.last")
    for level in (2, 2, 3):
        desk.send(level=level)
    desk.sweep()
    used = "This business key was already used for another input."
    assert told(made) == [
        ("e1", "started", ""),
        ("e2", "started", events.SAME_KEY),
        ("e3", "failed", used),
    ]
    assert Run.objects.get().business_key == "hire Hire"


def test_a_mapping_that_does_not_fit_names_the_field_and_can_be_retried(desk: Desk) -> None:
    made = desk.make(filter="")
    desk.send(level="two")
    deliver(id="e2", name="hired", data={"team": "a"}, actor=HOOK)
    desk.sweep()
    assert told(made) == [
        ("e1", "failed", "input.level: must be of type integer"),
        ("e2", "failed", "mapping.full_name: there is no first"),
    ]
    changes.change(
        TriggerKind.EVENT,
        id=made,
        sent={**SAID, "mapping": {"full_name": "x", "level": 1}},
        actor=ADMIN,
    )
    first = Occurrence.objects.order_by("number")[0].number
    changes.retry(id=made, number=first, actor=ADMIN)
    desk.sweep()
    assert told(made)[0][1:] == ("started", "")
    assert events_of(Run.objects.get().id)[0]["makers"] == ["admin"]
    for number in (first, first + 7, 2**70):
        with pytest.raises(NotRetried):
            changes.retry(id=made, number=number, actor=ADA)
    before = [
        len(listing.read_one(TriggerKind.EVENT, made, ADA, at).history)
        for at in (first, 2**70, -(2**70))
    ]
    assert before == [0, 2, 0]


def test_makers_and_the_sender_decide_in_none_of_its_runs(desk: Desk, office: Office) -> None:
    """Dora, who reviews too, changed the trigger of Ada's; Cora sent the event."""
    for name in ("dora", "cora"):
        seeds.person(name, Group.ADMINS, Group.REVIEWERS)
    made = desk.make()
    changes.change(
        TriggerKind.EVENT, id=made, sent={**SAID, "name": "Changed"}, actor=Actor(person="dora")
    )
    desk.send(actor=Actor(person="cora"))
    desk.sweep()
    run = Run.objects.get().id
    assert events_of(run)[0]["makers"] == ["dora", "cora"]
    office.advance(run)
    assert Approval.objects.get(run=run).origin == ["ada", "dora", "cora"]
    codes = [refused(run, Actor(person=name)) for name in ("ada", "dora", "cora")]
    assert codes == ["requester", "origin", "origin"]
    assert office.approve(run).status == "completed"
    assert verify(run).is_consistent


def test_an_event_that_was_changed_in_postgres_starts_nothing(desk: Desk) -> None:
    """As a trigger of another person's, it would be a way around four eyes."""
    made = desk.make()
    for _ in range(2):
        desk.send()
    ReceivedEvent.objects.filter(event_id="e1").update(by="someone")
    desk.sweep()
    assert told(made) == [("e1", "failed", "the event does not verify"), ("e2", "started", "")]


@pytest.mark.parametrize("state", ["new", "waiting"])
def test_an_event_that_a_program_gave_to_another_trigger_starts_nothing(
    desk: Desk, state: str
) -> None:
    """It could end the work of a person who was hired."""
    left = desk.make(event="left")
    path = webhooks.make(id=desk.make(name="hook"), scheme="header", header="X-T", actor=ADA)
    receive(path.address, {"X-T": path.secret}, json.dumps(DATA).encode())
    desk.make()
    desk.send()
    same = desk.make(name="same name")  # was made later, and takes no delivery of another's webhook
    hooked, sent = ReceivedEvent.objects.order_by("seq").values_list("seq", flat=True)
    for made, number in ((left, sent), (same, hooked)):
        Occurrence.objects.create(
            trigger=made, number=number, at=NOON, kind="event", state=state, key="a"
        )
    Trigger.objects.update(due_at=NOON)
    desk.sweep()
    for made in (left, same):
        assert [one[1:] for one in told(made)] == [
            ("failed", "the event is not one of this trigger")
        ]
    assert Run.objects.count() == 3


def test_an_event_of_an_earlier_name_is_handled_again(desk: Desk) -> None:
    made = desk.make()
    desk.send(level="high")
    desk.sweep()
    mapped = {"full_name": "x", "level": 1}
    changes.change(
        TriggerKind.EVENT, id=made, sent={**SAID, "event": "joined", "mapping": mapped}, actor=ADA
    )
    changes.retry(id=made, number=Occurrence.objects.get().number, actor=ADA)
    desk.sweep()
    assert told(made) == [("e1", "started", "")]


def test_an_owner_without_the_right_starts_nothing(desk: Desk) -> None:
    made = desk.make()
    accounts.set_groups("ada", [], actor="admin")
    desk.send()
    desk.sweep()
    assert told(made) == [("e1", "failed", "ada does not have the right runs:start.")]


def test_pause_resume_and_end(desk: Desk) -> None:
    made = desk.make(at_once=1)
    for _ in range(2):
        desk.send()
    desk.sweep()
    changes.pause(TriggerKind.EVENT, id=made, actor=ADA)
    assert desk.send() == 0
    desk.end()
    desk.sweep(2)
    assert [state for _, state, _ in told(made)] == ["completed", "waiting"]
    changes.resume(TriggerKind.EVENT, id=made, actor=ADMIN)
    desk.send()
    desk.sweep(2)
    changes.end_trigger(TriggerKind.EVENT, id=made, actor=ADA)
    assert told(made)[1:] == [("e2", "started", ""), ("e4", "skipped", "the trigger was ended")]
    shown = listing.read_one(TriggerKind.EVENT, made, ADA)
    assert (shown.state, shown.makers, shown.changeable) == ("ended", ("ada", "admin"), False)
    assert [one.act for one in shown.acts] == ["ended", "resumed", "paused", "made"]
    with pytest.raises(TriggerEnded):
        changes.resume(TriggerKind.EVENT, id=made, actor=ADA)


def test_old_events_are_deleted_unless_one_waits(desk: Desk) -> None:
    made = desk.make(at_once=1)
    for _ in range(2):
        desk.send()
    desk.sweep()
    for model in (Occurrence, ReceivedEvent):
        model.objects.update(at="2020-01-01T00:00Z")
    with pool.open_own() as own:
        assert (occurrences.prune(own), received_events.prune(own)) == (1, 1)
    assert told(made) == [("e2", "waiting", "")]


def test_a_trial_says_what_would_be_started_and_starts_nothing(desk: Desk) -> None:
    made = desk.make()
    desk.send(level="two")
    sample = {**DATA, "country": "FR"}
    tried = trials.try_definition(SAID, ADA, sample=sample, id=made)
    assert [(one.event, one.passes, one.problem) for one in tried] == [
        ("sample", False, ""),
        ("e1", True, "input.level: must be of type integer"),
    ]
    (one,) = trials.try_definition({**SAID, "filter": ""}, ADA, sample={"id": "x", "data": DATA})
    assert (one.event, one.key, one.input) == ("x", "a", {"full_name": "New Hire", "level": 2})
    assert one.data == DATA
    with pytest.raises(NoSuchTrigger):
        trials.try_definition(SAID, seeds.person("otto", Group.REQUESTERS), id=made)
    with pytest.raises(InvalidInput, match="must be an object"):
        trials.try_definition(SAID, ADA, sample=[])
    assert (Run.objects.count(), TriggerAct.objects.count()) == (0, 1)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": " "}, "name: must have 1 to 100 characters"),
    ({"event": ""}, "event: must have 1 to 200 characters"),
    ({"event": None}, "event: is missing: it must be text"),
    ({"agent": "gone"}, "agent: There is no agent with this name."),
    ({"filter": "data.a.all(x, data.b.all(y, x == y))"}, "filter: has 2 quantifiers, at most one"),
    ({"filter": "a" * 2_001}, "filter: has 2001 characters, at most 2000"),
    ({"filter": "secret"}, "filter: names secret, but the facts are id, source, name"),
    ({"filter": "data.a =="}, "filter: is not valid CEL"),
    ({"filter": "size('x')"}, "filter: its result is neither true nor false"),
    ({"filter": "name"}, "filter: its result is neither true nor false"),
    ({"mapping": {"full_name": "{{data.x}}"}}, "mapping.level: is missing"),
    ({"mapping": {"level": 1, "full_name": "{{x}}"}}, "mapping.full_name: names x, but"),
    ({"mapping": {"level": "{{id}}", "full_name": 3}}, "mapping.full_name: must be of type string"),
    ({"mapping": {"a": ["{{id}}"] * 51}}, "mapping: has 51 expressions, at most 50"),
    ({"mapping": {"a": "x" * 70_000}}, "mapping: is 70008 bytes of JSON; at most 65536"),
    ({"mapping": {"level": float("nan")}}, "mapping.level: "),
    ({"at_once": 0}, "at_once: must be a whole number from 1 to 1000"),
    ({"key": "", "at_once_per_key": 1}, "at_once_per_key: needs a key"),
    ({"wakes": "first"}, "business_key: must say which run an event wakes"),
    ({"wakes": "first", "business_key": "id"}, "key: must be empty"),
    (
        {"wakes": "first", "business_key": "id", "key": "", "debounce": 9},
        "debounce: must be 0 for a trigger that wakes runs",
    ),
    ({"debounce": 3_601}, "debounce: must be a whole number of seconds from 0 to 3600"),
    ({"rate_seconds": 0}, "rate_seconds: must be a whole number of seconds from 1 to 86400"),
]


def test_a_wrong_field_is_named(desk: Desk, subtests: pytest.Subtests) -> None:
    for sent, why in WRONG:
        with subtests.test(why):
            with pytest.raises(RequestError) as caught:
                desk.make(**sent)
            assert f"{caught.value.field}: {caught.value.detail}".startswith(why)
    assert not Trigger.objects.exists()


def test_an_expression_makes_no_input_beyond_the_limit(desk: Desk) -> None:
    made = desk.make(filter="", mapping={"level": 1, "full_name": "{{[" + "data," * 20 + "data]}}"})
    desk.send(first="x" * 20_000)
    desk.sweep()
    assert "makes an input of more than 65536 bytes" in told(made)[0][2]


# Keys and times


AT = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITION: dict[str, Any] = {
    "name": "New people",
    "agent": "a",
    "event": "person",
    "filter": "",
    "mapping": {},
    "key": "data",
    "business_key": "",
    "at_once": None,
    "at_once_per_key": None,
    "debounce": 0,
    "rate": None,
    "rate_seconds": 60,
}


@pytest.mark.parametrize("data", [None, "", [], ["a"], {"a": 1}, "x" * (MAX_KEY + 1)])
def test_a_key_is_one_short_value(data: Any) -> None:
    facts = {"id": "1", "source": "s", "name": "person", "subject": "", "time": "", "data": data}
    definition = EventDefinition(**DEFINITION)
    with pytest.raises(InvalidInput) as caught:
        definition.compute_key(facts)
    assert caught.value.field == "key"
    assert definition.compute_key({**facts, "data": "x" * MAX_KEY}) == "x" * MAX_KEY
    assert definition.compute_key({**facts, "data": 7}) == "7"


def test_an_event_waits_no_longer_than_some_debounces_while_others_come() -> None:
    definition = EventDefinition(**DEFINITION | {"debounce": 10})
    most = MAX_DEBOUNCES * timedelta(seconds=10)
    last = WaitingEvent(number=2, key="k", at=AT + most - timedelta(seconds=1), first_at=AT)
    end = AT + most
    early = plan_starts(definition, [last], {}, (), end - timedelta(microseconds=1))
    assert (early.start, early.next_at) == ((), end)
    assert plan_starts(definition, [last], {}, (), end).start == (last,)
