"""The check of the dates of figures."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.figures import Finding, Line
from tests.bench.report import PAGE, write
from tests.docs import figures

MEASURED = "2026-11-25 20:17 UTC"
WHOLE = f"# Performance\n\n## The machine\n\n- {MEASURED}, full numbers\n\n## The engine: tools\n\n| figure |\n"
ALONE = WHOLE + "\nMeasured apart: 2026-12-09 08:00 UTC, full numbers.\n\n## More\n"


@pytest.mark.parametrize(
    ("page", "changed", "is_old"),
    [
        (WHOLE, "2026-12-02", False),
        (WHOLE, "2026-12-03", True),
        (ALONE, "2026-12-16", False),
        (ALONE, "2026-12-17", True),
    ],
)
def test_figures_are_at_most_a_week_older_than_the_engine(
    page: str, changed: str, is_old: bool
) -> None:
    problem = figures.problem_of(page, datetime.fromisoformat(changed).replace(tzinfo=UTC))
    assert ("run `make bench`" in problem) is is_old


def test_the_check_reads_what_the_bench_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    monkeypatch.setattr("tests.bench.report.PAGE", page)
    line = Line("flows a second", [1.0], least=1)
    for others_stay in (False, True):
        write(
            [Finding("The engine: tools", [line], "")],
            load_before=(0, 0, 0),
            seconds=1,
            quick=False,
            others_stay=others_stay,
        )
        assert figures.problem_of(page.read_text(), datetime.now(UTC)) == ""


def test_a_folder_without_the_whole_history_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    assert figures.main() == 0
    monkeypatch.setattr(figures, "git", lambda *_: "true")  # that it is shallow
    assert figures.main() == 0
    assert capsys.readouterr().out.count("is not checked") == 2
