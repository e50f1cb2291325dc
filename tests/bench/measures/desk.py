"""A hundred mixed requests, cleared by the keyboard of a reviewer in a real browser at a human pace.

The reviewer reads an ordinary request for one second and one with an odd value for four, denies the odd ones with a
suggested reason, types the name of each at high risk, and answers questions.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from approvals.decisions import decide
from approvals.governance import policies
from approvals.models import Approval
from approvals.people.accounts import create_person
from approvals.rules.policy import Group
from runtime.ports.access import Actor
from tests.bench.figures import Finding, Line, percentile, ratio
from tests.bench.sides import tasks
from tests.bench.sides.desk import Desk
from tests.bench.sides.reviewer import FLAGGED, ORDINARY, TYPING, Clearing, browser, clear
from tests.bench.site import Site
from tests.support import servers
from tests.support.people import until
from tests.support.seeds import PASSWORD

HISTORY = 60  # approvals from which the usual values are learnt
SCREEN = {"width": 1440, "height": 900}
DORA = Actor(person="dora")


def measure(site: Site, *, quick: bool) -> Finding:
    """Clear a hundred requests, or with `quick` twenty."""
    number = 20 if quick else 100
    desk, port = Desk(), servers.free_port()
    url = f"http://127.0.0.1:{port}"
    worker, sweeper = site.worker(), site.sweeper()
    web = site.web(port, PUBLIC_URL=url, SIGNOFF_UNDO_SECONDS="10")
    approve_usual(desk)
    mix = tasks.mixed(number)
    runs = started(desk, mix.tasks)
    _approve_as_first(runs)
    with browser(url, "bea", viewport=SCREEN) as tabs:
        cleared = clear(tabs.new_page(), tabs.new_page(), number)
    _check(runs, mix)
    desk.until_ended(runs)
    site.end(web, worker, sweeper)
    return _finding(cleared, len(mix.planted))


def started(desk: Desk, given: Sequence[tasks.Task]) -> list[UUID]:
    """Start a run for each task, and wait until each asks."""
    runs = [desk.start("clerk", task) for task in given]
    until(lambda: len(desk.pending(runs)) == len(runs) or None, "every run to ask", 120.0)
    return runs


def approve_usual(desk: Desk) -> None:
    """Approve calls as they usually are, so that another value is odd, under the policy of these tasks."""
    if not User.objects.filter(username=DORA.person).exists():
        create_person(username=DORA.person, password=PASSWORD, groups=[Group.REVIEWERS])
        policies.confirm(policies.propose(tasks.POLICY, actor=None), actor=None)
        policies.forget()
    runs = started(desk, tasks.usual(HISTORY))
    _approve_as_first(runs)
    for form in desk.pending(runs).values():
        desk.approve(form)
    desk.until_ended(runs)


def _approve_as_first(runs: Sequence[UUID]) -> None:
    """Approve as Dora the requests that need two people: the reviewer of this measure completes them."""
    for approval in Approval.objects.filter(run__in=runs, tool=tasks.OF_TWO, status="pending"):
        decide.decide(
            approval_id=approval.id,
            digest=approval.approval_digest,
            verdict="approve",
            reason="",
            actor=DORA,
        )


def _check(runs: Sequence[UUID], mix: tasks.Mix) -> None:
    """Check that the planted requests were denied, and all others approved or answered."""
    rows = Approval.objects.filter(run__in=runs)
    wrong = [
        (run, approval.status, task)
        for run, task in zip(runs, mix.tasks, strict=True)
        for approval in rows.filter(run=run)
        if approval.status != _expected(task, mix)
    ]
    assert not wrong, wrong


def _expected(task: tasks.Task, mix: tasks.Mix) -> str:
    if task in mix.planted:
        return "denied"
    return "answered" if task["name"] == tasks.QUESTION else "approved"


def _finding(found: Clearing, planted: int) -> Finding:
    load = median(found.loads)

    def against(percent: int, **goal: Any) -> Line:
        value = percentile(found.waits, percent) if percent < 100 else max(found.waits)
        name = f"p{percent}" if percent < 100 else "at most"
        what = f"decision → next request on the screen, {name}, to a bare load of a page"
        return ratio(what, [value], [load], " ms", **goal)

    return Finding(
        f"A reviewer clears {len(found.presses)} mixed requests by keyboard",
        [
            Line("seconds in all", [found.seconds], " s", most=3 * len(found.presses)),
            Line("keys pressed for a request, at most", [max(found.presses)], most=2),
            Line("keys pressed for a request", found.presses),
            Line("letters typed of a name or an answer", [one for one in found.letters if one]),
            against(50, most=1),
            against(95),
            against(100),
            Line("the longest of them", [max(found.waits)], " ms", most=300),
            Line("first → second step at high risk", found.steps, " ms"),
            Line(f"planted requests denied, of {planted}", [planted], least=planted),
        ],
        f"{ORDINARY:.0f} s to read a request, {FLAGGED:.0f} s with an odd value, {TYPING} s for a letter. The bare load"
        " is of a request's page in another tab.",
    )
