"""The important one of a hundred mixed requests, decided on a phone: from opening the app to the confirmation.

The others wait meanwhile, all with earlier deadlines. Each visit has an important request of its own.
"""

from uuid import UUID

from approvals.models import Approval
from runtime.control.interventions import cancel
from tests.bench.figures import Finding, Line
from tests.bench.measures.desk import approve_usual, started
from tests.bench.sides import phone, tasks
from tests.bench.sides.desk import ADA, Desk
from tests.bench.sides.phone import AIM, Visit
from tests.bench.sides.reviewer import FLAGGED, TYPING, browser
from tests.bench.site import Site
from tests.support import servers


def measure(site: Site, *, quick: bool) -> Finding:
    """Approve and deny three important requests beside 99 others, or with `quick` one of each beside 19."""
    number, rounds = (20, 1) if quick else (100, 3)
    desk, port = Desk(), servers.free_port()
    url = f"http://127.0.0.1:{port}"
    worker, sweeper = site.worker(), site.sweeper()
    web = site.web(port, PUBLIC_URL=url, SIGNOFF_UNDO_SECONDS="10")
    approve_usual(desk)
    others = started(desk, tasks.ordinary(number - 1))
    approved, denied = list[Visit](), list[Visit]()
    with browser(url, "bea", **phone.SCREEN) as context:
        phone.use_before(context)
        for place in range(rounds):
            for approve, visits in ((False, denied), (True, approved)):
                approval_id = _asked(desk, place)
                visits.append(phone.decide(context, str(approval_id), approve=approve))
                status = Approval.objects.get(id=approval_id).status
                assert status == ("approved" if approve else "denied"), status
    for run in others:
        cancel(run=run, reason="The measure is over.", actor=ADA)
    desk.until_ended(others, "cancelled")
    site.end(web, worker, sweeper)
    return _finding(number, approved, denied)


def _asked(desk: Desk, place: int) -> UUID:
    """Start the run of an important request; return the request."""
    (run,) = started(desk, [tasks.important(place)])
    return Approval.objects.get(run=run).id


def _finding(number: int, approved: list[Visit], denied: list[Visit]) -> Finding:
    visits = [*approved, *denied]
    return Finding(
        f"A reviewer decides the important one of {number} requests on a phone",
        [
            Line("rows above it on the first screen", [one.before for one in visits], most=0),
            Line("opening the app → approved", [one.seconds for one in approved], " s", most=30),
            Line("opening the app → denied", [one.seconds for one in denied], " s", most=30),
            Line("taps to approve, second step included", [one.taps for one in approved], most=4),
            Line("taps to deny, the reason included", [one.taps for one in denied], most=5),
            Line("time of the app alone", [one.seconds - one.pauses for one in visits], " s"),
        ],
        "390×844 with touch. The first tap opens the installed app. The risk is high, the amount odd, the deadline the"
        f" last. {FLAGGED:.0f} s to read, {AIM:.0f} s to aim, {TYPING} s for a letter of the name. A denial takes a"
        " suggested reason.",
    )
