"""The imports and the command line of a worker process."""

import gc
from types import SimpleNamespace

import pytest

from config import celery, wiring, worker
from config.broker import queues
from runtime.upkeep import startup
from tests.support import commands

# The start of a worker without the steps that need servers.
START = """
import sys
from config.worker import app
app.loader.import_default_modules()
import agents.flows.hr, agents.llm.providers, agents.effect_handler
print(*sys.modules)
"""
IMPORT = """
import gc, runpy, sys
collected = []
gc.callbacks.append(lambda phase, _: collected.append("django" in sys.modules))
sys.argv = ["config.worker", "--help"]
try:
    runpy.run_module("config.worker", run_name="__main__")
finally:
    print(any(collected))
"""


def test_a_worker_imports_no_pages_and_no_unused_clients() -> None:
    said = commands.python("-c", START).stdout.split()
    assert "agents.effect_handler" in said
    assert {
        *("config.urls", "runtime.web.api.runs", "celery.bin.celery", "prompt_toolkit"),
        *("openai", "anthropic"),
    }.isdisjoint(said)


@pytest.mark.parametrize("given", ["--concurrency=many", "--queues", "--pool=prefork"])
def test_a_wrong_command_line_is_refused_by_name(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        worker.main([given])
    assert given.partition("=")[0] in capsys.readouterr().err


def test_a_worker_imports_without_collecting_garbage() -> None:
    said = commands.python("-c", IMPORT).stdout.split()
    assert said[-1] == "False"


def test_a_worker_collects_garbage_once_it_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for module, name in (
        (startup, "require_database"),
        (startup, "require_broker"),
        (startup, "require_keys"),
        (startup, "require_durable_stores"),
        (startup, "require_keys_of_live_runs"),
        (queues, "set_concurrency"),
        (wiring, "connect_effects"),
        (gc, "freeze"),
        (gc, "set_threshold"),
        (gc, "enable"),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name, **__: done.append(name))
    monkeypatch.setenv("PGAPPNAME", "a test")
    celery._equip(SimpleNamespace(concurrency=1))
    assert done[-4:] == ["connect_effects", "freeze", "set_threshold", "enable"]
