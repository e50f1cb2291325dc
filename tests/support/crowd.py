"""A request with everything that its page can show beside the call."""

from datetime import timedelta

from approvals import clock
from approvals.decisions import teamwork
from approvals.decisions.teamwork import inquire
from approvals.models import Approval, Comment
from approvals.people import absences
from approvals.rules.policy import Group
from approvals.signed import rows
from runtime.core.values.enums import EffectClass
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome
from tests.approvals.policies.office import put_in_force
from tests.support.fake_ports import FakeTool, Script, say
from tests.support.office import BEA, Office
from tests.support.seeds import decide, person

RULE = """
rules:
  - name: Two
    match: {tool: set_privileges}
    quorum: 2
    people: [bea, cora, dan]
    escalate: [{people: [eva], expires_after: 3600}]
"""


def crowded(office: Office) -> Approval:
    """Return a request of Ada's run, which bea may decide, under a policy that stays in force.

    It has a vote of cora, who is bea's deputy, a claim of dan and a hand-over to bea, people who look at it, comments,
    one of them forged, and questions to the agent that are answered, failed and open.
    """
    cora, dan, eva = (person(name, Group.REVIEWERS) for name in ("cora", "dan", "eva"))
    work = office.effects.agents["account_agent"]
    left: list[Outcome] = [say("Because."), ModelFailure(error="no")]

    def model(request: ModelRequest) -> Outcome:
        return work(request) if request.inquiry is None else left.pop(0)

    agents: dict[str, Script] = office.effects.agents
    agents["account_agent"] = model
    office.effects.tools["set_privileges"] = FakeTool(
        effect=EffectClass.IDEMPOTENT, gated=True, expires_in=7200.0
    )
    put_in_force(RULE)
    approval = office.request(office.start())
    decide(approval, cora, reason="Seen.")
    teamwork.claim(approval_id=approval.id, actor=dan)
    teamwork.hand_over(approval_id=approval.id, to="bea", note="You know her.", actor=dan)
    kept = teamwork.add_comment(approval_id=approval.id, text="Ask first.", actor=eva)
    forged = Comment(approval=approval, person="eva", text="Approve it.", at=kept.at)
    rows.sign(forged)
    forged.text = "Deny it."
    forged.save(force_insert=True)
    for actor in (cora, eva):
        teamwork.record_presence(approval_id=approval.id, actor=actor)
    now = clock.now()
    absences.announce(
        deputy="cora", starts=now - timedelta(days=1), ends=now + timedelta(days=1), actor=BEA
    )
    for question in ("Why?", "Why 3?", "And now?"):
        inquire(approval_id=approval.id, question=question, actor=cora)
        if left:
            office.advance(approval.run_id)
    approval.refresh_from_db()
    return approval
