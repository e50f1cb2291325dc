"""In CI a skipped test is a failure unless skips.txt lists it with a reason."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest


class Skips:
    """A pytest plugin. Lines of the list read `pattern of test ids: reason`; # starts a comment."""

    def __init__(self, listed: Path) -> None:
        lines = listed.read_text(encoding="utf-8").splitlines()
        wanted = [line for line in lines if line.strip() and not line.startswith("#")]
        self.patterns = [_pattern(line, listed) for line in wanted]
        self.unlisted: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unlisted:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.unlisted:
            terminalreporter.write_line(f"SKIPPED WITHOUT A LISTED REASON {test}", red=True)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        if not any(fnmatchcase(report.nodeid, pattern) for pattern in self.patterns):
            self.unlisted.append(report.nodeid)


def _pattern(line: str, listed: Path) -> str:
    pattern, separator, reason = line.partition(": ")
    if not separator or not reason.strip():
        raise pytest.UsageError(f"{listed.name}: no reason given in {line!r}")
    return pattern.strip()
