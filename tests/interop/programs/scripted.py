"""A loop for the programs of this folder, which run agents with a scripted model whose tool needs an approval.

A program runs in an environment without this project. It reads one plan a line and writes one line of results: the
texts that the model read of its calls. The model asks for a payment of each amount at once, and ends when it has the
results.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REASONING = "The invoice is due."


@dataclass(frozen=True)
class Plan:
    """One agent. `thread` is the same when it is resumed; `folder` keeps its state and its payments.

    `block` is a block of the docs that makes the agent instead.
    """

    url: str
    token: str
    thread: str
    timeout: str
    amounts: tuple[int, ...]
    folder: str
    block: str

    def pay(self, amount: int) -> str:
        """Pay. Each payment adds a line, so a second one of the same amount is seen."""
        with (Path(self.folder) / "payments").open("a") as file:
            file.write(f"{amount}\n")
        return f"paid {amount}"

    def calls(self) -> list[tuple[str, dict[str, int]]]:
        """The calls of the model: their ids and arguments."""
        return [(f"call-{amount}", {"amount": amount}) for amount in self.amounts]

    def state(self, name: str) -> str:
        return str(Path(self.folder) / name)

    def execute(self, **names: Any) -> Any:
        """Run the block with these names, and return its agent."""
        os.environ["SIGNOFF_URL"] = self.url.removesuffix("/api/aap")
        os.environ["SIGNOFF_INSTANCE_TOKEN"] = self.token
        exec(self.block, names)  # noqa: S102 - a page of this project
        return names["agent"]


def serve(run: Callable[[Plan], list[str]]) -> None:
    """Run the plans, one after the other."""
    answers = os.fdopen(os.dup(1), "w")  # frameworks print, too
    os.dup2(2, 1)
    for line in sys.stdin:
        fields = json.loads(line)
        plan = Plan(**{**fields, "amounts": tuple(fields["amounts"])})
        answers.write(json.dumps(run(plan)) + "\n")
        answers.flush()
