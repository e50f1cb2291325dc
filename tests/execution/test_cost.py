"""Counts the Python functions that a flow calls: its cost in a unit that depends on no machine and no load.

A flow is that of the bench's `engine` measure: a start, three tool calls, the second behind a gate. Each part is
counted in the thread that asks for it, so the broker, HTTP and the threads of tools are no part of it.

Another test follows a decision from the click to the start of its effect, and counts the modules that it enters.
"""

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar
from uuid import UUID

import pytest
from django.db import connection, transaction

from agents.catalogue.published import publish
from agents.effect_handler import AgentEffects
from agents.registry import Registry
from approvals.decisions.decide import decide
from approvals.governance import policies
from approvals.models import Approval
from approvals.port.adapter import ApprovalService
from approvals.requests import confirmation
from config.env.environment import ROOT
from runtime import broker
from runtime.control.start import start
from runtime.execution.claim import advance
from runtime.store import pool
from tests.bench.sides import agents, workload
from tests.code_figures import bounds
from tests.code_figures.sources import PRODUCT
from tests.docs.words import say
from tests.support.calls import around
from tests.support.engine import ADA, HandDriven
from tests.support.office import BEA
from tests.support.pages import log_in
from tests.support.seeds import Cast

pytestmark = pytest.mark.slow

T = TypeVar("T")

# Calls of a flow by part. A change that makes a part cheaper lowers its number; no change raises one, because the sum
# once grew by a third in two days. These are the calls of Python 3.11: later releases inline comprehensions.
MOST = {"start": 142, "first advance": 1100, "decide": 283, "second advance": 1302}
ROOM = 1.01  # a thread that is still at work at a switch leaves one or two calls more
MORE = 1.05  # the index of a longer journal may be a level deeper
WARM, COUNTED = 12, 5
ENTERED = "modules from click to effect"  # a figure of `make figures`


class Flows(HandDriven):
    """Flows that the test's own thread takes from start to end, with the calls of each part of the last one."""

    def __init__(self) -> None:
        registry = Registry(agents={spec.name: spec for spec in (agents.onboard, agents.walk)})
        publish(registry)
        super().__init__(AgentEffects(registry), ApprovalService())
        self.calls: Counter[str] = Counter()

    def take(self, agent: str, given: Any) -> dict[str, int]:
        """Take a flow from its start to its end, and return its calls."""
        self.calls.clear()
        run = self._count("start", lambda: begin(agent, given))
        self._count("first advance", lambda: advance(run, self.context))
        form = form_of(run)
        self._count("decide", lambda: decide(**form))
        self._count("second advance", lambda: advance(run, self.context))
        return dict(self.calls)

    def _count(self, part: str, act: Callable[[], T]) -> T:
        def count(_: FrameType, event: str, __: object) -> None:
            self.calls[part] += event == "call"

        return profiled(act, count)


def profiled(act: Callable[[], T], profile: Callable[[FrameType, str, object], None]) -> T:
    sys.setprofile(profile)
    try:
        return act()
    finally:
        sys.setprofile(None)


def functions_of(act: Callable[[], object], *, until: CodeType) -> set[CodeType]:
    """Return the functions of the product that are called up to that of `until`, also by new threads."""
    codes = set[CodeType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and until not in codes:
            codes.add(frame.f_code)

    threading.setprofile(note)
    try:
        profiled(act, note)
    finally:
        threading.setprofile(None)
    assert until in codes
    return {code for code in codes if _is_ours(code)}


def modules_of(functions: set[CodeType]) -> set[Path]:
    return {Path(code.co_filename).relative_to(ROOT) for code in functions}


def _is_ours(code: CodeType) -> bool:
    path = Path(code.co_filename)
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PRODUCT


def begin(agent: str, given: Any) -> UUID:
    return start(agent=agent, input=given, business_key=None, actor=ADA).run


def form_of(run: UUID) -> dict[str, Any]:
    """Return what approves the request of a run."""
    approval = Approval.objects.get(run=run)
    form = {"approval_id": approval.id, "verdict": "approve", "digest": approval.approval_digest}
    return form | {"reason": "", "confirm": confirmation.find_required_name(approval), "actor": BEA}


@pytest.fixture
def flows(by_hand: None, cast: Cast) -> Iterator[Flows]:
    flows = Flows()
    yield flows
    flows.close()


def test_a_flow_calls_no_more_functions_than_it_did(flows: Flows) -> None:
    counted = [flows.take("onboard", given) for given in workload.newcomers(WARM + COUNTED)]
    fewest = {part: min(one[part] for one in counted[WARM:]) for part in MOST}
    dearer = {
        part: f"{fewest[part]} calls instead of {most}, {fewest[part] / most - 1:+.1%}"
        for part, most in MOST.items()
        if fewest[part] > most * ROOM
    }
    assert not dearer, f"a flow got dearer: {dearer}"


def test_a_decision_costs_as_much_after_many_steps(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(steps: int) -> tuple[int, int]:
        """Return the calls and the blocks of a decision; of a long run only the journal is made."""
        flows.take("walk", {"steps": 5})  # warms
        run = begin("walk", {"steps": 5})
        advance(run, flows.context)
        lengthen(run, steps)
        form = form_of(run)
        with monkeypatch.context() as patch, transaction.atomic():
            blocks = list[int]()
            around(patch, pool, "fetch_row", before=partial(count_blocks, blocks))
            decide(**form)
            transaction.set_rollback(True)
        flows.calls.clear()
        flows._count("decide", lambda: decide(**form))
        return flows.calls["decide"], sum(blocks)

    calls, blocks = cost(5)
    for steps in (1_000, 10_000):
        more_calls, more_blocks = cost(steps)
        say(f"a decision after {steps} steps: {more_calls} calls, {more_blocks} blocks")
        assert more_calls <= calls * MORE
        assert more_blocks <= blocks * MORE


def lengthen(run: UUID, steps: int) -> None:
    """Add entries to the journal of a run that nothing may read, two for each further step."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id, packed)"
            " SELECT run_id, position + n, body, mac, key_id, gen_random_uuid(), packed"
            " FROM runtime_journalentry, generate_series(1, %s) AS n"
            " WHERE run_id = %s AND position = (SELECT position FROM runtime_run WHERE id = run_id)",
            [2 * (steps - 5), run],
        )
        cursor.execute("ANALYZE runtime_journalentry")  # or plans may be those for short journals


def count_blocks(
    blocks: list[int], connection: Any, statement: str, parameters: Any, **_: Any
) -> None:
    """Note the blocks that Postgres looks at for a statement."""
    with connection.transaction(force_rollback=True):
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        ((plan,),) = connection.execute(explained, parameters).fetchall()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    blocks.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def test_a_decision_enters_no_more_modules_than_it_did(
    flows: Flows, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send_hint(run: UUID, queue: str) -> None:
        """Stand for what follows the commit of the decision in the web process."""

    monkeypatch.setattr(broker, "dispatch", send_hint)
    browser = log_in(cast.bea)

    def click(run: UUID) -> Callable[[], object]:
        form = form_of(run)
        fields = {name: form[name] or "" for name in ("digest", "confirm")}
        return partial(browser.post, f"/a/{form['approval_id']}/approve/", fields)

    for newcomer in workload.newcomers(2):  # the second one counts
        run = begin("onboard", newcomer)
        advance(run, flows.context)
        # Its threads start anew, so that they are followed too.
        flows.context.effect_pool._threads.shutdown()
        flows.context.effect_pool._threads = ThreadPoolExecutor(1)
        policies.forget()  # which a worker asks once a second
        web = functions_of(click(run), until=send_hint.__code__)
        worker = functions_of(
            partial(advance, run, flows.context), until=workload.set_privileges.__code__
        )
    for process, functions in {"web": web, "worker": worker, "both": web | worker}.items():
        modules = modules_of(functions)
        say(f"\n{process}: {len(modules)} modules, {len(functions)} functions")
        for room, paths in groupby(sorted(modules, key=str), key=lambda path: path.parent):
            say(f"  {room}: {' '.join(path.stem for path in paths)}")
    assert bounds.read()[ENTERED].allows(len(modules_of(web | worker)))
