"""Counts the Python functions that a flow calls: its cost in a unit that depends on no machine and no load.

A flow is that of the bench's `engine` measure: a start, three tool calls, the second behind a gate. Each part is
counted in the thread that asks for it, so the broker, HTTP and the threads of tools are no part of it.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar
from uuid import UUID

import pytest

from agents.catalogue.published import publish
from agents.effect_handler import AgentEffects
from agents.registry import Registry
from approvals.adapter import Approvals
from approvals.decisions.decide import decide
from approvals.models import Request
from approvals.requests import confirmation
from runtime.control.start import start
from runtime.execution.claim import advance
from tests.bench.sides import agents, workload
from tests.support.engine import ADA, HandDriven
from tests.support.office import BEA
from tests.support.seeds import Cast

T = TypeVar("T")

# Calls of a flow by part. A change that makes a part cheaper lowers its number; no change raises one, because the sum
# once grew by a third in two days. These are the calls of Python 3.11: later releases inline comprehensions.
MOST = {"start": 430, "first advance": 2473, "decide": 476, "second advance": 3139}
ROOM = 1.01  # a thread that is still at work at a switch leaves one or two calls more
WARM, COUNTED = 12, 5


class Flows(HandDriven):
    """Flows that the test's own thread takes from start to end, with the calls of each part of the last one."""

    def __init__(self) -> None:
        registry = Registry(agents={spec.name: spec for spec in (agents.onboard, agents.walk)})
        publish(registry)
        super().__init__(AgentEffects(registry), Approvals())
        self.calls: Counter[str] = Counter()

    def take(self, agent: str, given: Any) -> None:
        """Take a flow from its start to its end."""
        self.calls.clear()
        run = self._count("start", lambda: begin(agent, given))
        self._count("first advance", lambda: advance(run, self.context))
        form = form_of(run)
        self._count("decide", lambda: decide(**form))
        self._count("second advance", lambda: advance(run, self.context))

    def _count(self, part: str, act: Callable[[], T]) -> T:
        def count(_: FrameType, event: str, __: object) -> None:
            if event == "call":
                self.calls[part] += 1

        sys.setprofile(count)
        try:
            return act()
        finally:
            sys.setprofile(None)


def begin(agent: str, given: Any) -> UUID:
    return start(agent=agent, input=given, business_key=None, actor=ADA).run


def form_of(run: UUID) -> dict[str, Any]:
    """Return what approves the request of a run."""
    request = Request.objects.get(run=run)
    form = {"request": request.id, "verdict": "approve", "digest": request.request_digest}
    return form | {"reason": "", "confirm": confirmation.required(request), "actor": BEA}


@pytest.fixture
def flows(by_hand: None, cast: Cast) -> Iterator[Flows]:
    flows = Flows()
    yield flows
    flows.close()


def test_a_flow_calls_no_more_functions_than_it_did(flows: Flows) -> None:
    counted: list[dict[str, int]] = []
    for given in workload.newcomers(WARM + COUNTED):
        flows.take("onboard", given)
        counted.append(dict(flows.calls))
    fewest = {part: min(one[part] for one in counted[WARM:]) for part in MOST}
    dearer = {
        part: f"{fewest[part]} calls instead of {most}, {fewest[part] / most - 1:+.1%}"
        for part, most in MOST.items()
        if fewest[part] > most * ROOM
    }
    assert not dearer, f"a flow got dearer: {dearer}"


def test_a_decision_calls_as_many_functions_after_many_steps(flows: Flows) -> None:
    def decision(steps: int) -> int:
        flows.take("walk", {"steps": steps})
        return flows.calls["decide"]

    decision(5)  # warms
    short = decision(5)
    assert decision(300) <= short * ROOM
