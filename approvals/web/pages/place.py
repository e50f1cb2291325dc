"""The place in the inbox from which a reviewer opened a request: a view and a search, kept in the page's address."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest

from approvals.queries import filters
from approvals.queries.inbox import View
from runtime.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A view of the inbox, and the text of a search, empty for none."""

    view: View = View.MINE
    q: str = ""

    @property
    def query(self) -> str:
        """The query of an address with its question mark, empty for the whole list `mine`."""
        chosen = {"view": "" if self.view is View.MINE else self.view, "q": self.q}
        found = urlencode({name: value for name, value in chosen.items() if value})
        return f"?{found}" if found else ""


def read(request: HttpRequest) -> Place:
    """Read the place from the address. A view or search that is none is left out."""
    view, q = request.GET.get("view", ""), request.GET.get("q", "").strip()
    try:
        filters.condition(q)
    except InvalidInput:
        q = ""
    return Place(view=View(view) if view in list(View) else View.MINE, q=q)
