"""The onboarding agents, turn by turn: their calls after each result."""

from typing import Any

import pytest

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from runtime.core.enums import EffectClass
from runtime.core.events import Proposal
from runtime.ports.effects import ToolResult
from tests.agents.conftest import Directory, Sink
from tests.support.frames import Frame
from tests.support.specs import CREATE, NEWCOMER, tool_request

ACCOUNT = ("returned", {"id": "a-1", "username": "new.hire"})
PRIVILEGES = ("returned", {"username": "new.hire", "roles": [{"value": "security-level-3"}]})
MAIL = ("returned", {"message_id": "<m@example.com>"})
DENIED = ("denied", "level 3 is for after the trial period")

SET = Proposal(
    tool="set_privileges", args={"account_id": "a-1", "username": "new.hire", "security_level": 3}
)
WELCOME = Proposal(
    tool="send_welcome_mail",
    args={"full_name": "New Hire", "email": "new.hire@example.com", "username": "new.hire"},
)


@pytest.fixture
def handler(hr: Registry) -> AgentEffects:
    return AgentEffects(hr)


def _calls(frame: Frame, *results: tuple[str, Any]) -> tuple[Proposal, ...]:
    """The calls after these results, each given to the turn after the one before."""
    answer = frame.ask()
    for result in results:
        frame.settle(result)
        answer = frame.ask()
    return answer.calls


def _last_words(frame: Frame, *results: tuple[str, Any]) -> str:
    assert _calls(frame, *results) == ()
    return str(frame.messages[-1]["text"])


@pytest.mark.parametrize("agent", ["account_agent", "hr_onboarding_single"])
def test_privileges_are_set_with_the_id_of_the_new_account(
    handler: AgentEffects, agent: str
) -> None:
    assert _calls(Frame(handler, agent, NEWCOMER)) == (CREATE,)
    assert _calls(Frame(handler, agent, NEWCOMER), ACCOUNT) == (SET,)


def test_effects_and_gates_are_those_of_the_actions(handler: AgentEffects) -> None:
    """Only the mail may never be repeated; only the privileges wait for a person."""
    described = {
        proposal.tool: handler.describe(agent=agent, tool=proposal.tool, args=proposal.args)
        for agent, proposal in (
            ("account_agent", CREATE),
            ("account_agent", SET),
            ("hr_onboarding", WELCOME),
        )
    }
    assert {name: (facts.effect, facts.gated) for name, facts in described.items()} == {
        "create_account": (EffectClass.IDEMPOTENT, False),
        "set_privileges": (EffectClass.IDEMPOTENT, True),
        "send_welcome_mail": (EffectClass.WRITE, False),
    }
    assert described["set_privileges"].sentence == "Give new.hire security level 3"
    single = handler.describe(agent="hr_onboarding_single", tool=SET.tool, args=SET.args)
    assert single.gated


def test_every_agent_declares_its_steps(handler: AgentEffects) -> None:
    for name in handler.registry.agents:
        assert handler.agent(name).plan


def test_the_hr_agent_delegates_the_account_with_its_input(handler: AgentEffects) -> None:
    (proposal,) = _calls(Frame(handler, "hr_onboarding", NEWCOMER))
    assert proposal == Proposal(tool="account_agent", args=NEWCOMER)
    facts = handler.describe(agent="hr_onboarding", tool=proposal.tool, args=proposal.args)
    assert facts.delegate == "account_agent"


def test_both_levels_go_on_after_the_approval(handler: AgentEffects) -> None:
    said = _last_words(Frame(handler, "account_agent", NEWCOMER), ACCOUNT, PRIVILEGES)
    assert said == "The account new.hire was made with security level 3."
    assert _calls(Frame(handler, "hr_onboarding", NEWCOMER), ("returned", said)) == (WELCOME,)
    last = _last_words(Frame(handler, "hr_onboarding", NEWCOMER), ("returned", said), MAIL)
    assert last == f"{said} The welcome mail went to new.hire@example.com."


def test_denied_privileges_are_not_requested_again(handler: AgentEffects) -> None:
    said = _last_words(Frame(handler, "account_agent", NEWCOMER), ACCOUNT, DENIED)
    assert "its privileges were denied: level 3 is for after the trial period" in said
    assert _calls(Frame(handler, "hr_onboarding", NEWCOMER), ("returned", said)) == (WELCOME,)
    assert said in _last_words(Frame(handler, "hr_onboarding", NEWCOMER), ("returned", said), MAIL)


def test_the_single_agent_takes_a_denial_the_same_way(handler: AgentEffects) -> None:
    assert _calls(Frame(handler, "hr_onboarding_single", NEWCOMER), ACCOUNT, DENIED) == (WELCOME,)
    last = _last_words(Frame(handler, "hr_onboarding_single", NEWCOMER), ACCOUNT, DENIED, MAIL)
    assert "denied: level 3 is for after the trial period. The welcome mail went" in last


def test_without_an_account_there_are_no_privileges_and_no_mail(handler: AgentEffects) -> None:
    taken = ("failed", "the username new.hire is taken")
    said = _last_words(Frame(handler, "account_agent", NEWCOMER), taken)
    assert said == "No account was made for new.hire: the username new.hire is taken."
    assert _last_words(Frame(handler, "hr_onboarding", NEWCOMER), ("returned", said)) == said
    assert _last_words(Frame(handler, "hr_onboarding_single", NEWCOMER), taken) == said


def test_a_sub_agent_that_fails_leaves_no_mail_either(handler: AgentEffects) -> None:
    said = _last_words(Frame(handler, "hr_onboarding", NEWCOMER), ("failed", "the model is away"))
    assert said == "No account was made: the model is away."


def test_failed_privileges_and_mails_are_reported(handler: AgentEffects) -> None:
    last = _last_words(
        Frame(handler, "hr_onboarding_single", NEWCOMER),
        ACCOUNT,
        ("failed", "the directory refused: no"),
        ("failed", "the mail server refused the mail: no"),
    )
    assert "its privileges could not be set: the directory refused: no" in last
    assert "The welcome mail was not sent: the mail server refused the mail: no" in last


def test_a_script_says_the_same_to_the_same_messages(handler: AgentEffects) -> None:
    one, other = (Frame(handler, "account_agent", NEWCOMER) for _ in range(2))
    assert _calls(one, ACCOUNT, DENIED) == _calls(other, ACCOUNT, DENIED)
    assert one.messages[-1]["text"] == other.messages[-1]["text"]


def test_the_whole_way_on_real_servers(
    handler: AgentEffects, directory: Directory, sink: Sink
) -> None:
    frame = Frame(handler, "hr_onboarding_single", NEWCOMER)
    for turn, proposal in enumerate((CREATE, None, WELCOME), start=1):
        (wanted,) = frame.ask().calls
        assert proposal in (None, wanted)
        call = {"call": f"c{turn}.0", "deadline": 10.0}
        request = tool_request("hr_onboarding_single", wanted.tool, wanted.args, **call)
        outcome = handler.perform(request)
        assert isinstance(outcome, ToolResult), outcome
        frame.settle(("returned", outcome.value))
    assert frame.ask().text == (
        "The account new.hire was made with security level 3. "
        "The welcome mail went to new.hire@example.com."
    )
    (account,) = directory.accounts()
    assert [role.value for role in account.roles] == ["security-level-3"]
    (mail,) = sink.mails
    assert mail["To"] == "new.hire@example.com"
