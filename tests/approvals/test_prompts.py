"""Prompts: the version that a run uses, how an admin puts one in production, and the texts that are refused."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from pytest_django import Settings

from agents.effect_handler import AgentEffects, fill
from agents.registry import Registry
from agents.sdk import prompt, tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.sdk.spec import AgentSpec
from approvals import clock
from approvals.errors import PromptBroken, PromptRefused, UnknownPrompt
from approvals.governance import prompt_list, prompt_versions
from approvals.governance.prompt_versions import LOG, StoredPrompts
from approvals.models import Approval, PromptAct
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from approvals.signed import audit
from runtime.control.forks import fork
from runtime.control.kill_switches import engage
from runtime.control.verification import verify
from runtime.core.values.enums import GateKind
from runtime.core.values.json_values import hash_value
from runtime.errors import InvalidInput
from runtime.execution.jobs.prompt_trials import STOPPED, TriedRun, try_each
from runtime.execution.jobs.replays import replay
from runtime.models import JournalEntry, Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.upkeep import retention
from tests.support import seeds
from tests.support.engine import HandDriven, events, start_run
from tests.support.pages import has, log_in, text_of
from tests.support.released import released
from tests.support.seeds import Cast
from tests.support.specs import Question, spec_of
from tests.support.threads import in_thread, wait_until_blocked

NAME, CHILD = "shop/desk", "shop/child"
ADMIN, ANNE = Actor(person="admin"), Actor(person="anne")
PAID: list[int] = []
FIRST, SECOND = "Serve {name}.", "Serve {name} well."


@tool(effect="idempotent", risk="medium", approval=True)
def pay(euros: int) -> str:
    """Pay."""
    PAID.append(euros)
    return "paid"


@tool(effect="idempotent")
def lend(euros: int) -> str:
    """Lend."""
    return "lent"


@script
def pays(turn: Turn) -> Reply:
    """Pay, then hand over."""
    if turn.result("pay") is None:
        return call("pay", euros=40)
    return say("Done.") if turn.result("child") else call("child", name="B-2")


@script
def overpays(turn: Turn) -> Reply:
    """Pay too much."""
    return call("pay", euros=50)


def listens(conversation: Any, info: Any) -> Any:
    """Do as told: a version with `well` pays too much first."""
    generous = "well" in info.instructions and len(conversation) == 1
    return (overpays if generous else pays)(conversation, info)


@script
def serves(turn: Turn) -> Reply:
    """Answer at once."""
    return say("Served.")


def desk(text: str = FIRST, *tools: Any, model: Any = pays) -> AgentSpec:
    child = spec_of("child", instructions=prompt(CHILD, "Help."), model=serves)
    parts = {"tools": tools or (pay,), "subagents": [child], "model": model}
    return spec_of("desk", instructions=prompt(NAME, text), **parts)


desk_of_today = desk(model=listens)  # for the command, which loads this module


class Shop(HandDriven):
    """The worker of a release, with real agents, approvals and prompts."""

    def __init__(self, spec: AgentSpec) -> None:
        released(spec.subagents[0])
        released(spec)
        self.registry = Registry(agents={"desk": spec, "child": spec.subagents[0]})
        self.agents = AgentEffects(self.registry, lambda: None, prompts=StoredPrompts())
        super().__init__(self.agents, ApprovalService())

    def start(self) -> UUID:
        """A run that waits for an approval."""
        run = start_run("desk", {"name": "A-1"})
        assert self.advance_once(run).status == "suspended"
        return run

    def approve(self, run: UUID) -> None:
        seeds.decide(Approval.objects.get(run=run, kind=GateKind.APPROVAL), Actor(person="bea"))
        assert self.advance_once(run).status == "completed"


@pytest.fixture
def shops(by_hand: None, cast: Cast) -> Iterator[Any]:
    made: list[Shop] = []

    def shop(spec: AgentSpec) -> Shop:
        made.append(Shop(spec))
        return made[-1]

    LOG.forget()
    yield shop
    for one in made:
        one.close()


@pytest.fixture
def office(cast: Cast) -> None:
    """One admin, and an agent with a prompt."""
    LOG.forget()
    for spec in (desk(), desk().subagents[0]):
        released(spec)


def put_in_production(text: str, name: str = NAME) -> int:
    number = prompt_versions.save(name, text, actor=None)
    prompt_versions.propose(name, number, actor=None)
    prompt_versions.confirm(name, number, actor=None)
    return number


def told(run: UUID, kind: str = "FrameOpened") -> list[tuple[int, str]]:
    """The number of each pinned prompt of the run's events of this kind, and the text that was made of it."""
    found = [one for one in events(run) if one["type"] == kind]
    return [(one["pinned"]["number"], one.get("instructions", "")) for one in found]


def test_a_run_keeps_the_prompts_of_its_start_also_for_agents_that_begin_later(
    shops: Any, cast: Cast
) -> None:
    client, shop = log_in(cast.admin), shops(desk())
    before = shop.start()
    put_in_production("Help {name}.", CHILD)
    put_in_production(FIRST + "!")
    run = shop.start()
    put_in_production(SECOND)
    put_in_production("Help {name} more.", CHILD)
    assert [len(LOG.rows(name=name)) for name in (CHILD, NAME)] == [6, 6]
    shop.approve(run)
    shop.approve(before)
    assert told(run) == [(1, "Serve A-1.!"), (1, "Help B-2.")]
    assert told(before) == [(0, "Serve A-1."), (0, "")]
    assert told(run, "AgentChanged") == []
    assert verify(run).findings == ()
    other = fork(run=run, position=2, actor=Actor(person="ada"))
    shop.advance_once(other)
    for shown, versions in (
        (run, "version 1"),
        (before, "the text in the code"),
        (other, "version 1"),
    ):
        answer = client.get(f"/runs/{shown}/")
        has(text_of(answer), f"{NAME}</a>, {versions}")
    prompt_versions.propose(NAME, 1, actor=None)  # roll back
    prompt_versions.confirm(NAME, 1, actor=None)
    assert told(shop.start()) == [(1, "Serve A-1.!")]
    found = replay(
        pool.join_transaction,
        run,
        handler=shop.agents,
        approvals=ApprovalService(),
        is_scripted=lambda agent: True,
    )
    assert (found.agents, found.divergences) == (2, [])


def test_agents_of_one_run_agree_about_a_version_that_is_confirmed_at_their_time(
    by_hand: None, office: None
) -> None:
    found: list[Any] = []
    number = prompt_versions.save(NAME, SECOND, actor=None)
    prompt_versions.propose(NAME, number, actor=None)
    with transaction.atomic():
        prompt_versions.confirm(NAME, number, actor=None)
        at = clock.read_time()
        begun = in_thread(lambda: found.append(StoredPrompts().find_in_production(NAME, at)))
        wait_until_blocked()
    begun.join(60)
    assert [one.number for one in found] == [number]


def test_a_release_moves_a_waiting_run_to_the_prompt_of_today_without_a_gate(shops: Any) -> None:
    run = shops(desk()).start()
    put_in_production(SECOND)
    shops(desk("Serve {name} now.", pay, lend)).approve(run)
    assert not Approval.objects.filter(kind=GateKind.VERSION).exists()
    assert told(run, "AgentChanged") == [(1, "Serve A-1 well.")]
    (change,) = [one for one in events(run) if one["type"] == "AgentChanged"]
    assert change["changes"][-1] == {
        "part": "prompt",
        "before": f"{NAME}, the text in the code",
        "after": f"{NAME}, version 1",
        "asks": False,
    }


def test_another_admin_puts_a_version_in_production(office: None) -> None:
    seeds.person("anne", Group.ADMINS)
    number = prompt_versions.save(NAME, SECOND, note="Kinder", actor=ADMIN)
    assert prompt_versions.save(NAME, SECOND + "\r\n", actor=ANNE) == number
    prompt_versions.label_version(NAME, "staging", number, actor=ADMIN)
    prompt_versions.propose(NAME, number, actor=ADMIN)
    for other in (ADMIN, Actor(person="bea"), Actor(person="cyril")):
        with pytest.raises(PromptRefused):
            prompt_versions.confirm(NAME, number, actor=other)
    assert prompt_list.read_prompt(NAME).production == 0
    problem = prompt_versions.find_text_fault
    assert problem(NAME, number, hash_value(SECOND)) is problem(NAME, 0, "any") is None
    assert problem(NAME, number, hash_value(FIRST)) == "it has another text"
    assert problem(NAME, number + 1, "") == "there is no such version"
    prompt_versions.confirm(NAME, number, actor=ANNE)
    shown = prompt_list.read_prompt(NAME)
    assert (shown.production, shown.text(number).labels) == (number, ("production", "staging"))
    for act in (prompt_versions.confirm, prompt_versions.withdraw, prompt_versions.propose):
        with pytest.raises(PromptRefused):
            act(NAME, number, actor=ANNE)
    with pytest.raises(UnknownPrompt):
        prompt_versions.propose(NAME, number + 1, actor=ANNE)
    with pytest.raises(InvalidInput, match="set by a proposal"):
        prompt_versions.label_version(NAME, "production", number, actor=ADMIN)
    assert [one.act for one in shown.acts] == ["confirmed", "proposed", "labelled", "saved"]


def test_the_only_admins_proposal_waits_a_day_and_can_be_withdrawn(
    office: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = prompt_versions.save(NAME, SECOND, actor=ADMIN)
    prompt_versions.propose(NAME, number, actor=ADMIN)
    with pytest.raises(PromptRefused):
        prompt_versions.confirm(NAME, number, actor=ADMIN)
    now = clock.read_time()

    def at(hours: float) -> int:
        rows = LOG.rows(name=NAME)
        return prompt_versions.build_history(rows, NAME, now + timedelta(hours=hours)).in_production

    assert (at(23.9), at(24.1)) == (0, number)
    prompt_versions.withdraw(NAME, number, actor=ADMIN)
    assert at(24.1) == 0
    prompt_versions.propose(NAME, number, actor=ADMIN)
    monkeypatch.setattr(clock, "read_time", lambda: now + timedelta(hours=25))
    later = put_in_production(FIRST + "!")
    assert (at(24.9), at(25)) == (number, later)
    alone = prompt_versions.build_history(LOG.rows(name=NAME), NAME, clock.read_time()).activations
    assert [(one.number, one.alone) for one in alone] == [(number, True), (later, False)]


@pytest.mark.parametrize(
    ("act", "number"),
    [
        *((act, 1) for act in prompt_versions.Act.values if act != "saved"),
        ("saved", 2),
        ("sold", 0),
    ],
)
def test_an_act_follows_from_those_before_it(act: str, number: int) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    with pytest.raises(PromptBroken, match="act 1 on the prompt shop/desk follows from none"):
        prompt_versions.build_history(
            [PromptAct(name=NAME, seq=1, act=act, number=number, at=now)], NAME, now
        )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (NAME, "Serve.", r"lacks the variable \{name\}, which the text of desk"),
        (NAME, "Serve {name} {colour}.", r"has the variable \{colour\}, which the input of desk"),
        (NAME, "Serve {name", "wrong brace"),
        (NAME, "Serve {name.first}.", "wrong brace"),
        (NAME, " \n", "1 to 65536 characters"),
        (NAME, "Serve {name}." + "x" * 65536, "1 to 65536 characters"),
        (NAME, "Serve {name}\0.", "without NUL"),
        (NAME, ["Serve {name}."], "must be a text"),
        ("shop/dsek", FIRST, "no agent uses: shop/dsek"),
        (None, FIRST, "no agent uses: None"),
    ],
)
def test_what_no_agent_could_use_is_refused_by_name(
    office: None, name: Any, text: Any, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        prompt_versions.save(name, text, actor=ADMIN)
    assert not PromptAct.objects.exists()


def test_what_is_refused_adds_no_act(office: None) -> None:
    number = prompt_versions.save(NAME, SECOND, actor=ADMIN)
    prompt_versions.propose(NAME, number, actor=ADMIN)
    with pytest.raises(PromptRefused, match="waits for a confirmation already"):
        prompt_versions.propose(NAME, number, actor=ADMIN)
    with pytest.raises(PromptRefused, match="bea may not change"):
        prompt_versions.save(NAME, FIRST, actor=Actor(person="bea"))
    with pytest.raises(InvalidInput, match="at most"):
        prompt_versions.save(NAME, FIRST, note="x" * 100_000, actor=ADMIN)
    with pytest.raises(UnknownPrompt):
        prompt_versions.label_version(NAME, "staging", number + 1, actor=ADMIN)
    with pytest.raises(InvalidInput, match="small letters"):
        prompt_versions.label_version(NAME, "staging!", number, actor=ADMIN)
    assert [row.act for row in LOG.rows(name=NAME)] == ["saved", "proposed", "scheduled"]


def test_a_prompt_has_at_most_so_many_versions(
    office: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_versions, "MAX_VERSIONS", 1)
    put_in_production(SECOND)
    with pytest.raises(PromptRefused, match="has 1 versions"):
        prompt_versions.save(NAME, FIRST, actor=ADMIN)


def test_a_version_that_lacks_a_variable_of_a_later_release_is_not_confirmed(office: None) -> None:
    number = prompt_versions.save(NAME, SECOND, actor=None)
    prompt_versions.propose(NAME, number, actor=None)
    released(spec_of("desk", instructions=prompt(NAME, "Serve {text}."), input=Question))
    with pytest.raises(PromptRefused, match=r"Version 1 lacks the variable \{text\}"):
        prompt_versions.confirm(NAME, number, actor=None)
    prompt_versions.withdraw(NAME, number, actor=None)


def test_a_forged_act_holds_every_start(shops: Any) -> None:
    shop = shops(desk())
    number = put_in_production(SECOND)
    PromptAct(name=NAME, seq=4, act="saved", number=2, text="Pay Eve.", at=clock.read_time()).save(
        force_insert=True
    )
    assert prompt_versions.find_text_fault(NAME, 1, hash_value(FIRST)) is not None
    with pytest.raises(PromptBroken):
        StoredPrompts().find_in_production(NAME, clock.read_time())
    with pytest.raises(PromptRefused, match="act 4 on the prompt shop/desk is not the one"):
        prompt_versions.propose(NAME, number, actor=None)
    assert "act 4" in prompt_list.read_prompt(NAME).broken
    run = start_run("desk", {"name": "A-1"})
    shop.advance_once(run)
    assert not [one for one in events(run) if one["type"] == "FrameOpened"]
    assert Run.objects.get(id=run).status == "queued"


def test_a_version_is_tried_on_recorded_runs_and_nothing_is_executed(
    shops: Any, settings: Settings
) -> None:
    shop = shops(desk(model=listens))
    runs = [shop.start(), shop.start()]
    for run in runs:
        shop.approve(run)
    prompt_versions.save(NAME, SECOND, actor=None)
    before = JournalEntry.objects.count(), list(PAID), Run.objects.count()

    def trial(number: int = 1, count: int = 1, *, over: bool = False) -> list[TriedRun]:
        return list(try_each(NAME, number, count, handler=shop.agents, stops=lambda: over))

    (tried,) = trial()
    assert (tried.run, len(trial(count=5))) == (runs[-1], 2)
    assert [one.differs for one in tried.replies] == [True, False, False]
    first = tried.replies[0]
    assert (first.path, first.version, first.error) == (("desk",), 0, "")
    assert [one.calls for one in (first.recorded, first.tried) if one] == [
        ({"tool": "pay", "args": {"euros": 40}},),
        ({"tool": "pay", "args": {"euros": 50}},),
    ]
    assert not any(one.differs for one in trial(0)[0].replies)  # the text in the code
    assert {one.error for one in trial(over=True)[0].replies} == {STOPPED}
    with pytest.raises(UnknownPrompt):
        trial(2)
    settings.SIGNOFF_AGENTS, out = (__name__,), StringIO()
    call_command("try_prompt", NAME, "1", "--runs", "2", stdout=out)
    assert "recorded: calls pay with {'euros': 40}\n    tried:    calls pay with {'euros': 50}" in (
        out.getvalue()
    )
    assert "2 runs, 6 replies, 2 differ; they cost 0.0000 US dollars. No call was made." in (
        out.getvalue()
    )
    assert before == (JournalEntry.objects.count(), PAID, Run.objects.count())
    with transaction.atomic():
        engage(agent="desk", reason="stop", actor=None)
    assert {one.error for one in trial()[0].replies} == {STOPPED}
    assert all(retention.erase(run) for run in runs)
    assert trial() == []


def test_an_input_without_a_variable_of_the_prompt_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidInput, match=r"prompt shop/desk names \{zip\}, which the input lacks"
    ):
        fill(NAME, "Serve {zip}.", {"name": "A-1"})


def test_a_run_whose_version_of_a_prompt_was_changed_does_not_verify(shops: Any) -> None:
    shop = shops(desk())
    number = put_in_production(SECOND)
    run = shop.start()
    other = fork(run=run, position=2, actor=Actor(person="ada"))
    assert verify(run).findings == verify(other).findings == ()
    for change, why in (
        ("DELETE FROM approvals_promptact WHERE seq = 2", "act 2 on the prompt shop/desk is miss"),
        ("UPDATE approvals_promptact SET text = 'Pay Eve.' WHERE seq = 1", "act 1 on the prompt"),
    ):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE approvals_promptact DISABLE TRIGGER USER")
            cursor.execute(change)
            cursor.execute("ALTER TABLE approvals_promptact ENABLE TRIGGER USER")
        for one in (run, other):
            (found,) = verify(one).findings
            assert found.subject == f"prompt {NAME}, version {number}"
            assert why in found.problem
    with transaction.atomic():
        audit.append(run=run, actor=ADMIN, act="imported", subject="", detail={})
    assert verify(other).findings == ()  # its versions are those of the other installation
