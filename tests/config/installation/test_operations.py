"""The operators' pages list every variable that is read, and start the processes of config/processes.py."""

import os
import re
from unittest.mock import MagicMock

import pytest

from config.env import environment
from config.env.environment import ROOT
from config.env.errors import InvalidSetting
from config.processes import table
from tests.support import commands

VARIABLES = (ROOT / "docs/reference/environment.md").read_text()
INSTALL = (ROOT / "docs/how-to/install.md").read_text()
MODELS = (ROOT / "docs/how-to/connect-models.md").read_text()
ROW = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \| ?(.*?) ?\| ?(.*?) ?\|$", re.MULTILINE)
ROWS = {name: (default, limits) for name, _, default, limits in ROW.findall(VARIABLES)}


def test_documented_variables_are_those_that_are_read() -> None:
    asked: set[str] = set()
    for model in ("scripted", "openai:x", "anthropic:x"):
        keys = {"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"}
        variables = MagicMock(wraps={"ABEYANCE_MODEL": model, **keys})
        environment.read(variables)
        asked |= {call.args[0] for call in variables.get.mock_calls}
    assert asked == set(ROWS)


# Makes a client of each kind of provider and prints which variables were read, also while the libraries were imported.
CLIENTS = """
import os
read, of = set(), type(os.environ)
get = of.__getitem__
of.__getitem__ = lambda variables, name: read.add(name) or get(variables, name)
from agents.endpoints import Endpoint, Kind
from agents.llm.clients import client_of
for kind in Kind:
    client_of(Endpoint(name=kind, kind=kind, key="x", url="http://127.0.0.1:9/v1"), "x")
print(*read)
"""
# Variables of unused library features: other clients, webhooks, traces without an exporter
WITHOUT_EFFECT = re.compile(
    "AZURE_.*|OPENAI_(API_KEY|API_TYPE|API_VERSION|ADMIN_KEY|WEBHOOK_SECRET)"
    "|ANTHROPIC_(OPEN_TELEMETRY.*|WEBHOOK_SIGNING_KEY)"
)


def test_variables_that_provider_clients_read_are_documented() -> None:
    done = commands.python("-c", CLIENTS, env={"PATH": os.environ["PATH"]})
    providers = re.compile("(OPENAI|ANTHROPIC|AZURE|AWS|GOOGLE|GEMINI|OLLAMA|VLLM|SSL)_")
    read = {name for name in done.stdout.split() if providers.match(name)}
    (table,) = re.findall(r"^\| read by clients .*\n((?:\|.*\n)+)", MODELS, re.MULTILINE)
    named = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert {name for name in read if not WITHOUT_EFFECT.fullmatch(name)} == {
        name
        for name in named
        if not name.endswith("_PROXY")  # proxy variables are searched among all
    }


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
    assert started == [" ".join(process.command[1:]) for process in table()]
