"""The place in the inbox from which a reviewer opened a request: a view, a search and an order, kept in addresses."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest

from approvals.people import preferences
from approvals.reads import filters, inbox
from approvals.reads.approval_views import ApprovalView
from approvals.reads.inbox import DEFAULT, Neighbours, View
from approvals.reads.orders import Grouping, Order, Sort
from approvals.rights.principals import Principal
from runtime.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPosition:
    """A view of the inbox, the text of a search, empty for none, and the order of the rows."""

    view: View = View.MINE
    q: str = ""
    order: Order = DEFAULT

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters that differ from those of the whole list `mine`."""
        values = {
            "view": "" if self.view is View.MINE else str(self.view),
            "q": self.q,
            "sort": "" if self.order.sort is Sort.DEADLINE else str(self.order.sort),
            "group": "" if self.order.group is Grouping.DEADLINE else str(self.order.group),
        }
        return {name: value for name, value in values.items() if value}

    @property
    def query(self) -> str:
        """The query of an address with its question mark, empty for the whole list `mine`."""
        text = urlencode(self.parameters)
        return f"?{text}" if text else ""


def find_neighbours(
    position: ListPosition, principal: Principal | None, approval: ApprovalView
) -> Neighbours:
    """Return the requests before and after this one, in the order in which its place shows them."""
    if position == ListPosition():
        return inbox.find_list_neighbours(principal, approval)
    before, after = inbox.find_previous_and_next(principal, approval, position.q, position.order)
    return Neighbours(before=before, after=after)


def read_position(request: HttpRequest) -> ListPosition:
    """Read the place from the address. A value that is none is left out."""
    return parse_position(request.GET)


def parse_position(parameters: Mapping[str, str]) -> ListPosition:
    """Read the place from the parameters of an address. A value that is none is left out."""
    view, q = parameters.get("view", ""), parameters.get("q", "").strip()
    try:
        filters.build_condition(q)
    except InvalidInput:
        q = ""
    return ListPosition(
        view=View(view) if view in list(View) else View.MINE, q=q, order=read_order(parameters)
    )


def read_order(parameters: Mapping[str, str]) -> Order:
    """Read the order of the rows. A value that is none is left out."""
    sort, group = parameters.get("sort", ""), parameters.get("group", "")
    return Order(
        sort=Sort(sort) if sort in list(Sort) else Sort.DEADLINE,
        group=Grouping(group) if group in list(Grouping) else Grouping.DEADLINE,
    )


NAMES = ("tab", "status", "from", "to", "order", "q")
MAX_VALUE = 200  # characters of a search, the longest of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListPosition:
    """The parameters of the list of runs. The page itself refuses those that are none."""

    parameters: Mapping[str, str]

    @property
    def query(self) -> str:
        """The query of an address with its question mark."""
        return f"?{urlencode(self.parameters)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsView:
    """A saved view, and the query of its address."""

    id: UUID
    name: str
    query: str


def parse_run_position(parameters: Mapping[str, str]) -> RunListPosition:
    """Read the place from the parameters of an address."""
    texts = {name: parameters.get(name, "").strip()[:MAX_VALUE] for name in NAMES}
    clean = {name: text.replace("\x00", "") for name, text in texts.items()}
    return RunListPosition(parameters={name: text for name, text in clean.items() if text})


def read_run_views(username: str) -> list[RunsView]:
    """Return the views of a person by name."""
    return [
        RunsView(id=view.id, name=view.name, query=parse_run_position(view.place).query)
        for view in preferences.list_views(username, preferences.RUNS)
    ]
