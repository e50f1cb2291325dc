"""The figures of the code, and the check of their bounds."""

from pathlib import Path

import pytest

from tests.code_figures import __main__ as program
from tests.code_figures import bounds, names, uses
from tests.code_figures.bounds import Bound
from tests.code_figures.sources import Source

TEXT = """
from runtime.core.run.events import GateOpened
import json as found
class _Row:
    given: int
    def shown(self, why, *, limit=1):
        self.held = [one for one in why]
        kept = [
            part for part in why
        ]
        return kept, lambda place: place
match found:
    case {"a": said, **rest}:
        pass
"""


def source(text: str, path: str = "runtime/store/rows.py") -> Source:
    return Source(path, text)


def test_each_way_to_bind_a_vague_name_counts_but_a_comprehension_of_one_line() -> None:
    vague = sorted(binding.name for binding in names.bindings(source(TEXT)) if binding.is_vague)
    assert vague == [
        "found",
        "given",
        "held",
        "kept",
        *("part", "place", "rest", "said", "shown", "why"),
    ]


def test_a_private_class_shares_the_name_of_a_public_one() -> None:
    sources = [source(TEXT), source("class Row: pass", "approvals/rows.py")]
    assert names.shared_class_names(sources) == {
        "Row": ["runtime/store/rows.py:4", "approvals/rows.py:1"]
    }


def test_modules_count_as_users_of_an_enum_or_an_event_wherever_they_name_it() -> None:
    events = source("class GateOpened:\n    type: str\n", "runtime/core/run/events.py")
    sources = [
        events,
        source(TEXT),
        source("KIND = 'GateOpened'", "runtime/a.py"),
        source("v = enums.Verdict.DENY", "runtime/b.py"),
        source("v = Verdict.DENY", "runtime/c.py"),
    ]
    assert uses.modules_by_event(sources) == {
        "GateOpened": {"runtime/store/rows.py", "runtime/a.py"}
    }
    assert uses.modules_naming(sources, "Verdict") == ["runtime/b.py", "runtime/c.py"]


def test_a_module_with_one_importer_is_listed_with_it() -> None:
    sources = [
        source("import runtime.b", "runtime/a.py"),
        source("def one():\n    from runtime import c", "runtime/b.py"),
        source("from runtime.b import x", "runtime/c.py"),
    ]
    assert uses.single_importers(sources) == [(sources[2], "runtime/b.py")]


def test_the_state_machine_is_the_core_without_values_and_stored_forms() -> None:
    paths = (
        *("runtime/core/run/events.py", "runtime/core/run/reducer.py", "runtime/core/run/plan.py"),
        *("runtime/core/values/json_values.py", "runtime/core/documents/a.py"),
    )
    machine = uses.state_machine([source("", path) for path in paths])
    assert [module.path for module in machine] == list(paths[:3])


def test_a_figure_over_its_bound_or_without_one_is_a_problem() -> None:
    table = {
        "lines": Bound(limit=10, goal=5),
        "comments": Bound(limit=1, goal=2, is_minimum=True),
        "commits": Bound(limit=None, goal=3),
    }
    assert not list(program.problems_of({"lines": 10, "comments": 1, "commits": 9}, table))
    problems = list(program.problems_of({"lines": 11, "comments": 0.9, "names": 0}, table))
    assert [problem.partition(":")[0] for problem in problems] == ["lines", "comments", "names"]


def test_bounds_are_written_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bounds.read()
    path = tmp_path / "bounds.txt"
    path.write_text(bounds.TABLE.read_text())
    monkeypatch.setattr(bounds, "TABLE", path)
    bounds.write(before)
    assert bounds.read() == before


def test_a_written_bound_is_the_figure_or_the_goal_that_it_reached() -> None:
    table = {
        "lines": Bound(limit=10, goal=5),
        "comments": Bound(limit=1, goal=2, is_minimum=True),
        "commits": Bound(limit=None, goal=3),
    }
    for figure, lines, comments in ((7, 7, 2), (1, 5, 1)):
        written = bounds.with_limits(table, dict.fromkeys(table, figure))
        assert [bound.limit for bound in written.values()] == [lines, comments, None]


def test_a_reason_for_a_name_that_is_gone_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "allowed_names.txt"
    path.write_text("runtime/store/pool.py gone  the connection that was closed\n")
    monkeypatch.setattr(names, "ALLOWED", path)
    assert list(program._unused_reasons()) == [
        "allowed_names.txt: runtime/store/pool.py binds no gone"
    ]
