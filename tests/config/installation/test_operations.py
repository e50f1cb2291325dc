"""The operators' pages list every variable that is read, and start the processes of config/processes.py."""

import re
from unittest.mock import MagicMock

import pytest

from config.env import environment
from config.env.environment import ROOT
from config.env.values import InvalidSetting
from config.processes import list_processes

VARIABLES = (ROOT / "docs/reference/environment.md").read_text()
INSTALL = (ROOT / "docs/how-to/install.md").read_text()
ROW = re.compile(r"^- `([A-Z_]+)`(?: \((.+?)\))?: .+?(?:, \*(.+)\*)?$", re.MULTILINE)
ROWS = {name: (default, limits) for name, default, limits in ROW.findall(VARIABLES)}


def test_documented_variables_are_those_that_are_read() -> None:
    asked: set[str] = set()
    for model in ("scripted", "openai:x", "anthropic:x"):
        keys = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}
        variables = MagicMock(wraps={"SIGNOFF_MODEL": model, **keys})
        environment.read(variables)
        asked |= {call.args[0] for call in variables.get.mock_calls}
    assert asked == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_defaults_and_limits_are_those_that_hold(name: str) -> None:
    default, limits = ROWS[name]
    stated = re.fullmatch(r"`([^`]+)`( of the checkout)?", default)
    assert stated or default == ""
    value = "" if stated is None else str(ROOT / stated[1]) if stated[2] else stated[1]
    assert environment.read({name: value}) == environment.read({})
    if (match := re.fullmatch(r"from (\d+) to (\d+)", limits)) is None:
        return
    least, most = int(match[1]), int(match[2])
    for inside in (least, most):
        environment.read({name: str(inside)})
    for outside in (least - 1, most + 1):
        with pytest.raises(InvalidSetting, match=name):
            environment.read({name: str(outside)})


def test_services_without_docker_start_the_commands_of_the_table() -> None:
    started = re.findall(r"^ExecStart=\S+/python (.+)$", INSTALL, re.MULTILINE)
    assert started == [" ".join(process.command[1:]) for process in list_processes()]
