"""The navigation of every page, and the search over everything, both by what the reader may see.

The search lists links to pages, agents, people, requests and runs, a few of each. It reads as much beside a million
rows: the newest runs and decisions, and the requests with the next deadlines.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from approvals.people import account_list, preferences
from approvals.reads import filters, history, inbox
from approvals.reads.pending_ages import WINDOW
from approvals.rights import access, principals
from approvals.rights.principals import Principal
from approvals.rules.policy import Group
from approvals.web import list_position
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.reads import run_rows
from runtime.reads.filters import MAX_SEARCH, filter_runs, may_begin_id
from runtime.reads.labels import format_agent_title
from runtime.web.display import name_status
from runtime.web.requests import read_actor, render_live, users
from runtime.web.requests import read_search_text as read_search

HITS = 5  # of each kind
SEARCHED_RUNS = 10_000  # the newest ones: this search runs while a person types


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A link to something that matches; `note` tells it from others of the same name."""

    kind: str
    icon: str
    name: str
    url: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPage:
    """A page of the navigation: its name and route, other words for it, and the right that shows it, empty for all."""

    name: str
    route: str
    words: str = ""
    right: str = ""


PAGES = (
    LinkedPage(name="Emergency stop", route="kill_switches", words="kill switch", right="manages"),
    LinkedPage(name="Overview", route="overview", words="dashboard", right="manages"),
    LinkedPage(name="Cost", route="costs", words="usage tokens dollars", right="manages"),
    LinkedPage(name="Inbox", route="inbox", words="requests approvals", right="acts"),
    LinkedPage(name="History", route="history", words="decisions audit", right="acts"),
    LinkedPage(name="My requests", route="mine", words="my runs", right="starts"),
    LinkedPage(name="Runs", route="runs"),
    LinkedPage(name="Schedules", route="schedules", words="cron", right="starts"),
    LinkedPage(name="Triggers", route="triggers", words="events webhooks", right="starts"),
    LinkedPage(name="Agents", route="agents", words="start a run", right="reads_agents"),
    LinkedPage(name="Tools", route="tools", right="reads_agents"),
    LinkedPage(name="Policies", route="policies", words="rules", right="reads_rules"),
    LinkedPage(name="Allowances", route="allowances", right="reads_rules"),
    LinkedPage(name="People", route="people", words="users groups rights", right="manages"),
    LinkedPage(name="Prompts", route="prompts", right="manages"),
    LinkedPage(name="Your account", route="account", words="password tokens away mail"),
    LinkedPage(name="Manual", route="manual", words="help docs"),
)


@users.guard_page
def show_search(request: HttpRequest) -> HttpResponse:
    """Show what matches the words; for an open page, the list alone."""
    principal = principals.find_principal(read_actor(request))
    problem, hits = None, list[Hit]()
    try:
        text = read_search(request)
        hits = list(_find(request, principal, text)) if text else []
    except InvalidInput as exc:
        problem, text = exc, request.GET.get("q", "")
    context = {
        "section": "search",
        "q": text,
        "hits": hits,
        "problem": problem,
        "longest": MAX_SEARCH,
        "searched_runs": SEARCHED_RUNS,
        "searched_requests": WINDOW,
        "searched_decisions": history.SCANNED,
    }
    status = 422 if problem else 200
    return render_live(request, "approvals/search.html", context, status, "hits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Navigation:
    """Links of the navigation: `decides` shows the inbox, `starts` a form for runs, `manages` the people."""

    decides: bool = False
    starts: bool = False
    manages: bool = False
    reads_agents: bool = False

    @property
    def acts(self) -> bool:
        """Whether the reader has any right beside reading."""
        return self.decides or self.starts or self.manages

    @property
    def reads_rules(self) -> bool:
        """Whether the reader sees policies and allowances."""
        return self.decides or self.manages


def nav(request: HttpRequest) -> dict[str, Any]:
    """Add `nav`, `inbox_count` and `admins` (whom to ask), each read when a template uses it."""

    @cache
    def principal() -> Principal | None:
        if not request.user.is_authenticated:
            return None
        return principals.find_principal(principals.make_actor(request.user))

    return {
        "nav": SimpleLazyObject(lambda: build_navigation(principal())),
        "inbox_count": SimpleLazyObject(lambda: inbox.count_requests(principal()).mine_text),
        "admins": SimpleLazyObject(account_list.list_some_admins),
        "run_views": SimpleLazyObject(
            lambda: list_position.read_run_views(request.user.get_username())
        ),
        "reader_zone": preferences.read_choice(request).zone,
    }


def build_navigation(principal: Principal | None) -> Navigation:
    """Return the links for a reader."""
    if principal is None:
        return Navigation()
    return Navigation(
        decides=principal.has(principals.Scope.APPROVALS_DECIDE),
        starts=principal.has(principals.Scope.RUNS_START),
        manages=Group.ADMINS in principal.groups,
        reads_agents=access.may_read_agents(principal),
    )


def _find(request: HttpRequest, principal: Principal | None, text: str) -> Iterator[Hit]:
    reader, word = build_navigation(principal), text.lower()
    for page in PAGES:
        if word in f"{page.name} {page.words}".lower() and (
            not page.right or getattr(reader, page.right)
        ):
            yield Hit(kind="Page", icon="overview", name=page.name, url=reverse(page.route))
    if reader.reads_agents:
        titles = {
            name: format_agent_title(name)
            for name in sorted(wiring.resolve_catalogue().list_names())
        }
        matching = (name for name, title in titles.items() if word in f"{name} {title}".lower())
        for name in islice(matching, HITS):
            yield Hit(kind="Agent", icon="agent", name=titles[name], note=name,
                      url=reverse("agent", args=[name]))  # fmt: skip
    if reader.manages:
        with suppress(InvalidInput):  # the text has a filter that only another list knows
            for person in account_list.read_people_page(text).people[:HITS]:
                url = f"{reverse('people')}?{urlencode({'q': person.username})}"
                yield Hit(kind="Person", icon="person", name=person.username, note=person.full_name,
                          url=url)  # fmt: skip
    with suppress(InvalidInput):
        # Of the pending requests those with the next deadlines, and the newest decisions.
        requests = [(item, "pending") for item in inbox.find(principal, q=text, limit=HITS)]
        criteria = filters.read_criteria({"q": text}, timezone.get_current_timezone())
        decisions = history.read_page(principal, criteria, limit=HITS).items
        requests += [(item, item.status) for item in decisions]
        for item, note in requests:
            yield Hit(kind="Request", icon="inbox", name=item.sentence, note=note,
                      url=reverse("approval", args=[item.id]))  # fmt: skip
    with suppress(InvalidInput):
        readable = wiring.resolve_access().select_readable_runs(read_actor(request))
        newest = filter_runs(run_rows.select_newest(readable, SEARCHED_RUNS), search=text)
        rows = run_rows.read_runs_page(newest, limit=HITS).items
        if not rows and may_begin_id(text):
            rows = run_rows.read_runs_page(
                filter_runs(readable, search=f"id:{text}"), limit=HITS
            ).items
        for run in rows:
            agent = format_agent_title(run.agent)
            yield Hit(kind="Run", icon="runs", name=agent if run.title == run.agent else run.title,
                      note=f"{agent}, {name_status(run.status)}", url=reverse("run", args=[run.id]))  # fmt: skip
