"""The page of a request says, before a decision, that its agent has a newer version, with what changed."""

from dataclasses import replace

from django.test import Client

from approvals.models import Approval
from tests.support.office import Office
from tests.support.pages import shows
from tests.support.released import account_agent, released

SAYS = "The agent has changed since it asked"


def test_a_request_shows_what_changed_in_its_agent_since_it_asked(
    bea: Client, ada: Client, office: Office
) -> None:
    office.effects.released["account_agent"] = released(account_agent(instructions="Be <b>kind."))
    run = office.start()
    approval = Approval.objects.get(run=run)
    shows(bea, approval, hides=[SAYS])
    released(account_agent(instructions="Be <i>brief."))
    changed = ("<del>Be &lt;b&gt;kind.</del>", "<ins>Be &lt;i&gt;brief.</ins>")
    for reader in (bea, ada):
        shows(reader, approval, SAYS, "continues under it", *changed, hides=["version gate"])
    released(account_agent(instructions="Be <i>brief.", subagents=[]))
    shows(bea, approval, SAYS, "stops at a version gate", "sub-agent helper")
    office.approve(run)
    shows(bea, approval, hides=[SAYS])


def test_an_agent_above_the_one_that_asked_is_shown_too(bea: Client, office: Office) -> None:
    above = replace(account_agent(), name="hr_onboarding")
    office.effects.released["hr_onboarding"] = released(above)
    run = office.start()
    released(replace(above, instructions="Be brief."))
    shows(bea, Approval.objects.get(run=run), SAYS, "<bdi>Hr onboarding</bdi></b> was published")


def test_an_older_or_unknown_version_is_no_update(bea: Client, office: Office) -> None:
    newer = account_agent(tools=[])
    released(account_agent())
    office.effects.released["account_agent"] = released(newer)
    shows(bea, Approval.objects.get(run=office.start()), hides=[SAYS])
    office.effects.released["account_agent"] = "sha256:never published"
    shows(bea, Approval.objects.get(run=office.start()), hides=[SAYS])
