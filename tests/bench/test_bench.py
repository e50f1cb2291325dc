"""The pure parts of the bench: statistics, goals, costs and scripts. Its measurements are not asserted anywhere."""

import json
from typing import Any

import pytest

from tests.bench.figures import Finding, Line, markdown, one, percentile, ratios, spread
from tests.bench.measures.profile import per_flow
from tests.bench.meters import Cost
from tests.bench.rounds import line
from tests.bench.sides.timers import Timers
from tests.bench.sides.workload import (
    PAYLOAD,
    SCRIPTS,
    TOOLS,
    Call,
    newcomer,
    paces,
    text,
)


def test_a_spread_of_few_values_has_their_extremes() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert (found.n, found.median, found.low, found.high) == (3, 2.0, 1.0, 3.0)


def test_a_spread_leaves_out_the_outer_twentieths_of_many_values() -> None:
    found = spread([float(value) for value in range(101)])
    assert (found.median, found.low, found.high) == (50.0, 5.0, 95.0)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 95) == 4.0


def test_ratios_are_of_neighbours() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]).median == 2.5


def test_a_ratio_is_of_sums_if_a_reference_round_is_zero() -> None:
    assert line("broker", [1.0, 2.0], [0.0, 2.0], " ms").value.median == 1.5


@pytest.mark.parametrize(
    ("most", "least", "verdict"),
    [(None, None, ""), (1.0, None, "reached"), (0.9, None, "missed"), (None, 1.1, "missed")],
)
def test_a_goal_is_reached_or_missed_by_the_median(
    most: float | None, least: float | None, verdict: str
) -> None:
    assert Line(what="it", value=one(1.0), most=most, least=least).verdict == verdict


def test_a_finding_is_a_section_with_a_row_for_each_line() -> None:
    found = Finding(title="Flows", lines=(Line(what="it", value=one(2.0), unit=" ×", most=1.0),))
    assert "| it | 2.00 × (2.00 to 2.00, n=1) | ≤ 1.00 | missed |" in markdown(found)


def test_idle_counts_of_postgres_are_subtracted_by_duration() -> None:
    busy = Cost(seconds=2.0, workers=1.0, statements=100.0, wal=50.0)
    idle = Cost(seconds=10.0, workers=5.0, statements=100.0, wal=20.0)
    found = busy.less(idle)
    assert (found.statements, found.wal, found.workers) == (80.0, 46.0, 1.0)


def test_costs_are_subtracted_and_shared_out_field_by_field() -> None:
    found = (Cost(driver=5.0, broker=2.0) - Cost(driver=1.0)) / 2
    assert (found.driver, found.own, found.cpu) == (2.0, 2.0, 3.0)


def test_paces_compare_the_first_fifth_with_the_last() -> None:
    times = [0.0]
    for number in range(100):
        times.append(times[-1] + (0.002 if number < 50 else 0.004))
    assert json.loads(paces(times)) == pytest.approx({"first": 2.0, "last": 4.0})


def test_the_text_of_a_step_has_its_size_and_is_its_own() -> None:
    assert len(text(1)) == len(text(2)) == PAYLOAD
    assert text(1) != text(2) == text(2)


@pytest.mark.parametrize(
    ("script", "given", "called"),
    [
        ("onboard", newcomer(1), ["create_account", "set_privileges", "send_welcome_mail"]),
        ("account", newcomer(1), ["create_account", "set_privileges"]),
        ("walk", {"steps": 6}, ["note"] * 6 + ["gate"]),
    ],
)
def test_a_script_calls_its_tools_in_order_and_ends(
    script: str, given: dict[str, Any], called: list[str]
) -> None:
    results: list[Any] = []
    found = []
    while isinstance(reply := SCRIPTS[script](given, len(results), results.__getitem__), Call):
        found.append(reply.tool)
        results.append(TOOLS[reply.tool](**reply.args))
    assert found == called
    assert reply


def test_a_timer_excludes_the_time_of_called_functions() -> None:
    timers = Timers()
    inner = timers.around("inner", lambda: sum(range(200_000)))
    outer = timers.around("outer", lambda: [inner() for _ in range(10)])
    outer()
    sums = timers.sums()
    assert (sums["inner"][1], sums["outer"][1]) == (10, 1)
    assert sums["outer"][0] < sums["inner"][0]


def test_a_profile_is_of_one_flow() -> None:
    before, after = {"load": [1_000_000, 1]}, {"load": [5_000_000, 5], "seal": [2_000_000, 2]}
    assert per_flow(before, after, 2) == {"load": (2.0, 2.0), "seal": (1.0, 1.0)}
