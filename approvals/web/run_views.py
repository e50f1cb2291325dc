"""A person's saved views of the list of runs: a search and the filters beside it, kept in addresses."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

from approvals.people import preferences

NAMES = ("tab", "status", "from", "to", "order", "q")
MAX_VALUE = 200  # characters of a search, the longest of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsPlace:
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


def of(given: Mapping[str, str]) -> RunsPlace:
    """Read the place from the parameters of an address."""
    found = {name: given.get(name, "").strip()[:MAX_VALUE] for name in NAMES}
    clean = {name: text.replace("\x00", "") for name, text in found.items()}
    return RunsPlace(parameters={name: text for name, text in clean.items() if text})


def views(username: str) -> list[RunsView]:
    """Return the views of a person by name."""
    return [
        RunsView(id=one.id, name=one.name, query=of(one.place).query)
        for one in preferences.views_of(username, preferences.RUNS)
    ]
