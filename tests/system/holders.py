"""People at work on agents whose tools hold, die or wait for an approval, and the ledger of what these did."""

from pathlib import Path

from tests.support.people import Office
from tests.support.scripted_agents import ledger
from tests.support.stack import Stack


class Holders(Office):
    """The cast on a stack with these agents."""

    def __init__(self, stack: Stack, book: Path) -> None:
        super().__init__(stack)
        self.book = book

    def effects(self, *names: str) -> list[ledger.Effect]:
        """Everything that runs of these names did, in order."""
        return [one for one in ledger.read(self.book) if one.key.partition("/")[0] in names]

    def who(self, key: str) -> list[int]:
        """The ids of the processes that did this, in order."""
        return [one.process for one in ledger.read(self.book) if one.key == key]

    def release(self, name: str) -> None:
        ledger.mark(self.book, f"{name}.go")

    def epochs(self, *runs: str) -> list[int]:
        query = "SELECT epoch FROM runtime_run WHERE id = ANY(%s::uuid[])"
        return [epoch for (epoch,) in self.stack.rows(query, list(runs))]
