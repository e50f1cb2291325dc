"""The layers table of the architecture page names every module that .importlinter has."""

import configparser
import re

from config.env.environment import ROOT

PAGE = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
CONTRACTS = (
    *("engine", "web", "control", "upkeep", "execution", "admission", "effects"),
    *("queries", "store", "tables", "broker", "keyring"),
    *("approvals", "decisions", "accounts", "permissions", "requests", "lists", "desk"),
)


def test_every_module_of_a_layer_is_in_the_table() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = " ".join(contracts[f"importlinter:contract:{name}"]["layers"] for name in CONTRACTS)
    below = PAGE.partition("The inside of `runtime/` is layered")[2].partition("### Arrows")[0]
    told = set(re.findall(r"`(\w+)`", below)) | {"core"}
    assert set(re.findall(r"\w+", layers)) == told - {"runtime", "approvals"}
